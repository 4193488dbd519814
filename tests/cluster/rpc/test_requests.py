"""Requests and their answers over live sockets, on both event loops."""

import asyncio
import contextlib
import itertools
import socket
import time

import numpy as np
import pytest

from edlz.services.errors import (
    ConfigError,
    DataError,
    EdlzError,
    LocalProtocolError,
    RemoteProtocolError,
)
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    ErrorReply,
    Exchange,
    Ping,
    Pong,
    VectorPart,
)
from edlz.services.transport import loop_socket as loop_socket_module
from edlz.services.transport import sockets as sockets_module
from tests.loops import Run
from tests.rpc_peers import REQUEST, outcome_of, pair, part, push_of, until


def test_ping_is_answered_by_the_server_itself(run: Run, address: str) -> None:
    async def main() -> None:
        async with pair(address) as (server, client):
            assert await client.request(Ping(), 5) == Pong(role="ps", job="test")
            assert server.requests == []

    run(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
@pytest.mark.parametrize("port", ["0", "*"])
def test_a_free_port_is_chosen_and_named(host: str, port: str) -> None:
    if host == "[::1]" and not _has_ipv6():
        pytest.skip("this machine has no IPv6 loopback")

    async def main() -> None:
        async with pair(f"tcp://{host}:{port}") as (server, client):
            assert int(server.rpc.endpoint.rpartition(":")[2]) > 0
            assert isinstance(await client.request(Ping(), 5), Pong)

    asyncio.run(main())


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def test_ten_megabytes_go_both_ways_bit_by_bit(run: Run, address: str) -> None:
    there = np.frombuffer(np.random.default_rng(1).bytes(10_000_000), np.float32)
    back = np.frombuffer(np.random.default_rng(2).bytes(10_000_000), np.float32)

    async def main() -> None:
        async with pair(address, lambda body: part(back)) as (server, client):
            answer = await client.request(push_of(there), 5)
            ((_, body),) = server.requests
            assert isinstance(body, Exchange)
            assert body.push is not None
            assert body.push.gradient is not None
            assert body.push.gradient.tobytes() == there.tobytes()
            assert isinstance(answer, VectorPart)
            assert answer.values.tobytes() == back.tobytes()
            assert client.traffic.bytes_out == server.rpc.traffic.bytes_in > 10_000_000
            assert client.traffic.bytes_in == server.rpc.traffic.bytes_out > 10_000_000

    run(main())


def test_many_requests_at_once_are_all_answered(run: Run) -> None:
    async def main() -> None:
        async with pair(answer=lambda body: part(np.zeros(1, np.float32)), credits=100) as (server, client):
            async with asyncio.TaskGroup() as group:
                for _ in range(300):
                    group.create_task(client.request(REQUEST, 5))
            assert len(server.requests) == 300
            assert server.rpc.traffic.requests == server.rpc.traffic.answers == 300

    run(main())


@pytest.mark.parametrize(("cap", "most"), [("MESSAGES_PER_WAKE", 4), ("BYTES_PER_WAKE", 1)])
def test_the_loop_has_its_turn_while_requests_pour_in(
    run: Run, monkeypatch: pytest.MonkeyPatch, cap: str, most: int
) -> None:
    monkeypatch.setattr(loop_socket_module, cap, most)
    turns: list[int] = []

    async def main() -> None:
        async with pair(credits=64) as (server, client):
            loop = asyncio.get_running_loop()

            def turn() -> None:
                turns.append(len(server.requests))
                if len(server.requests) < 64:
                    loop.call_soon(turn)

            for _ in range(64):
                client.send(REQUEST, lambda answer: None)
            time.sleep(0.1)  # noqa: ASYNC251  all of them have arrived when the loop looks
            turn()
            await until(lambda: len(server.requests) == 64)

    run(main())
    assert max(b - a for a, b in itertools.pairwise(turns)) <= 8
    assert len(set(turns)) > 8


def test_the_loop_has_its_turn_between_large_answers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets_module, "BYTES_PER_WAKE", 1)
    turns: list[int] = []

    async def main() -> None:
        async with pair(answer=lambda body: part(np.zeros(1, np.float32)), credits=64) as (_, client):
            loop, answers = asyncio.get_running_loop(), list[Message | EdlzError]()

            def turn() -> None:
                turns.append(len(answers))
                if len(answers) < 20:
                    loop.call_soon(turn)

            for _ in range(20):
                client.send(REQUEST, answers.append)
            turn()
            await until(lambda: len(answers) == 20)

    run(main())
    assert max(b - a for a, b in itertools.pairwise(turns)) <= 2


@pytest.mark.parametrize("error", [DataError("record 3 is damaged", "convert it again"), ConfigError("no")])
def test_an_error_of_the_handler_arrives_as_its_class(run: Run, error: EdlzError) -> None:
    def answer(body: Message) -> Message:
        raise error

    async def main() -> None:
        async with pair(answer=answer) as (server, client):
            got = await outcome_of(client.request(REQUEST, 5))
            assert type(got) is type(error)
            assert isinstance(got, EdlzError)
            assert (got.message, got.help) == (error.message, error.help)
            assert isinstance(await client.request(Ping(), 5), Pong)
            assert not server.rpc.failed.done()

    run(main())


def test_an_error_of_a_code_that_nobody_knows_arrives_too(run: Run) -> None:
    async def main() -> None:
        async with pair(answer=lambda body: ErrorReply(code="new", message="m", help="h")) as (_, client):
            got = await outcome_of(client.request(REQUEST, 5))
            assert type(got) is RemoteProtocolError
            assert "'new': m" in got.message

    run(main())


def test_an_answer_that_cannot_be_encoded_is_an_error_of_the_server(run: Run) -> None:
    async def main() -> None:
        async with pair(answer=lambda body: part(np.zeros((2, 2), np.float32)[:, 0])) as (_, client):
            got = await outcome_of(client.request(REQUEST, 5))
            assert isinstance(got, LocalProtocolError)
            assert "C-contiguous" in got.message

    run(main())


def test_a_bug_in_the_handler_closes_the_server_and_says_so(run: Run) -> None:
    def answer(body: Message) -> Message:
        raise KeyError("a bug")

    async def main() -> None:
        async with pair(answer=answer) as (server, client):
            client.send(REQUEST, lambda answer: None)
            with pytest.raises(KeyError, match="a bug"):
                await server.rpc.failed
            await until(lambda: not client.is_connected)
            assert len(server.requests) == 1

    run(main())


def test_a_bug_behind_an_answer_closes_the_client_and_says_so(run: Run) -> None:
    def on_answer(answer: Message | EdlzError) -> None:
        raise KeyError("a bug")

    async def main() -> None:
        async with pair(answer=lambda body: part(np.zeros(1, np.float32))) as (_, client):
            client.send(REQUEST, on_answer)
            with pytest.raises(KeyError, match="a bug"):
                await client.failed
            with pytest.raises(LocalProtocolError, match="closed"):
                client.send(REQUEST, on_answer)

    run(main())

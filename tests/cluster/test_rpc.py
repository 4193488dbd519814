"""RPC over live sockets of this machine, on both event loops: what is lost, doubled or malformed does no harm."""

import asyncio
import contextlib
import itertools
import logging
import random
import socket
import stat
import tempfile
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

from edlz.services.configuration.endpoints import parse_endpoint
from edlz.services.errors import (
    ConfigError,
    DataError,
    EdlzError,
    LaunchError,
    LocalProtocolError,
    PeerUnavailable,
    RemoteProtocolError,
)
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    ErrorReply,
    Exchange,
    NewestPull,
    Ping,
    Pong,
    Push,
    ReadVector,
    VectorPart,
)
from edlz.services.transport import loop_socket as loop_socket_module
from edlz.services.transport.codec import PROTOCOL_VERSION, Codec
from edlz.services.transport.limits import Limits
from edlz.services.transport.rpc import ReplyTo, RpcClient, RpcServer
from edlz.services.transport.traffic import LOG_EVERY_S, RareLog
from tests.loops import LOOPS, Run, runner_on

ANY_PORT = "tcp://127.0.0.1:0"
REQUEST = ReadVector(vector="dense", first=0, count=3)
LIMIT_S = 10.0


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a test's coroutine on one of the loops, within a time limit."""
    return runner_on(request.param, monkeypatch, LIMIT_S)


@pytest.fixture(params=["tcp", "ipc"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with _address(request.param) as it:
        yield it


@contextlib.contextmanager
def _address(kind: str) -> Iterator[str]:
    """Give an address that can be bound several times in turn."""
    if kind == "tcp":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        yield f"tcp://127.0.0.1:{port}"
    else:
        with _short_folder() as folder:
            yield f"ipc://{folder}/server"


@contextlib.contextmanager
def _short_folder() -> Iterator[Path]:
    """A folder that does not exist, with a name short enough for a socket's path, as pytest's own need not be."""
    with tempfile.TemporaryDirectory(prefix="edlz-", dir="/tmp") as base:
        yield Path(base) / "sockets"


async def until(is_true: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not is_true():  # noqa: ASYNC110  whatever it is, in the servers' or in ZeroMQ's hands
            await asyncio.sleep(0.002)


class Server:
    """A server that notes its requests and answers each by `answer`; None: not at all."""

    def __init__(
        self,
        endpoint: str = ANY_PORT,
        answer: Callable[[Message], Message | None] = lambda body: None,
        **options: Any,
    ) -> None:
        self.requests: list[tuple[ReplyTo, Message]] = []
        self.answer = answer
        self.rpc = RpcServer(endpoint, self._on_request, role="ps", job="test", linger_s=0, **options)

    def _on_request(self, to: ReplyTo, body: Message) -> None:
        self.requests.append((to, body))
        answer = self.answer(body)
        if answer is not None:
            self.rpc.reply(to, answer)


@contextlib.asynccontextmanager
async def pair(
    endpoint: str = ANY_PORT,
    answer: Callable[[Message], Message | None] = lambda body: None,
    limits: Limits | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Server, RpcClient]]:
    """A server and a connected client."""
    server = Server(endpoint, answer, limits=limits)
    client = RpcClient(server.rpc.endpoint, role="worker", identity="0", limits=limits, **options)
    try:
        await until(lambda: client.is_connected)
        yield server, client
    finally:
        client.close()
        server.rpc.close()


@contextlib.contextmanager
def raw_peer(endpoint: str, identity: bytes = b"raw") -> Iterator["zmq.Socket[bytes]"]:
    """A plain ZeroMQ socket, which sends whatever it is given."""
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.IDENTITY, identity)
    peer.setsockopt(zmq.LINGER, 100)
    peer.setsockopt(zmq.SNDHWM, 0)
    peer.connect(endpoint)
    try:
        yield peer
    finally:
        peer.close()
        context.term()


async def received(peer: "zmq.Socket[bytes]") -> tuple[int, Message]:
    await until(lambda: peer.poll(0))
    return Codec("answers").decode(peer.recv_multipart())


def part(values: np.ndarray[Any, np.dtype[np.float32]]) -> VectorPart:
    return VectorPart(total=len(values), slots=(), values=values)


def push_of(gradient: np.ndarray[Any, np.dtype[np.float32]]) -> Exchange:
    body = Push(
        task=1, index=0, is_last=True, learning_rate=0.1, gradient=gradient, state=None, counters=None
    )
    return Exchange(era=(1, 1), incarnation=(1, 1), version=0, push=body)


async def outcome_of(awaitable: Awaitable[Message]) -> Message | EdlzError:
    try:
        return await awaitable
    except EdlzError as error:
        return error


# ---------------------------------------------------------------- requests and answers


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


def test_the_loop_has_its_turn_while_requests_pour_in(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_socket_module, "MESSAGES_PER_WAKE", 4)
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


# ---------------------------------------------------------------- losses


def test_a_request_waits_for_a_server_that_is_not_there_yet(run: Run, address: str) -> None:
    async def main() -> None:
        client = RpcClient(address, role="worker", identity="0", retry_s=60)
        asking = asyncio.ensure_future(client.request(Ping(), 5))
        await asyncio.sleep(0.02)
        assert not client.is_connected
        server = Server(address)
        assert isinstance(await asking, Pong)
        assert client.traffic.requests == 1
        client.close()
        server.rpc.close()

    run(main())


def test_a_request_under_way_outlives_its_server(run: Run, address: str) -> None:
    """The retry interval is out of reach: it is the new connection that sends it again."""

    async def main() -> None:
        first = Server(address)
        client = RpcClient(address, role="worker", identity="0", retry_s=60)
        asking = [asyncio.ensure_future(client.request(REQUEST, 9)) for _ in range(3)]
        await until(lambda: len(first.requests) == 3)
        first.rpc.close()
        await until(lambda: not client.is_connected)
        late = asyncio.ensure_future(client.request(Ping(), 9))
        second = Server(address, lambda body: part(np.ones(1, np.float32)))
        assert all(isinstance(answer, VectorPart) for answer in await asyncio.gather(*asking))
        assert isinstance(await late, Pong)
        assert [to.request_id for to, _ in second.requests] == [to.request_id for to, _ in first.requests]
        client.close()
        second.rpc.close()

    run(main())


def test_a_server_that_is_away_finds_no_heap_of_repetitions(run: Run, address: str) -> None:
    async def main() -> None:
        first = Server(address)
        client = RpcClient(address, role="worker", identity="0", retry_s=0.01, retry_max_s=0.01)
        await until(lambda: client.is_connected)
        first.rpc.close()
        await until(lambda: not client.is_connected)
        sent = client.traffic.requests
        asking = asyncio.ensure_future(client.request(REQUEST, 9))
        await asyncio.sleep(0.2)
        assert client.traffic.requests == sent
        second = Server(address, lambda body: part(np.ones(1, np.float32)))
        await asking
        assert len(second.requests) <= 2
        client.close()
        second.rpc.close()

    run(main())


def test_an_address_is_free_when_its_server_is_closed(run: Run, address: str) -> None:
    async def main() -> None:
        for _ in range(30):
            server = Server(address)
            assert server.rpc.endpoint == address
            server.rpc.close()

    run(main())


def test_an_answer_that_arrived_before_a_request_is_sent_is_seen(run: Run) -> None:
    """Sending reads ZeroMQ's commands, after which the descriptor says nothing of the answer any more."""

    async def main() -> None:
        async with pair(retry_s=60) as (server, client):
            answers: list[Message | EdlzError] = []
            client.send(REQUEST, answers.append)
            await until(lambda: server.requests)
            server.rpc.reply(server.requests[0][0], part(np.ones(1, np.float32)))
            time.sleep(0.05)  # noqa: ASYNC251  it arrives, and the loop does not look
            client.send(REQUEST, lambda answer: None)
            await until(lambda: answers)

    run(main())


def test_a_request_that_arrived_before_an_answer_is_sent_is_seen(run: Run) -> None:
    async def main() -> None:
        server = Server()
        with raw_peer(server.rpc.endpoint) as peer:
            peer.send_multipart(Codec("answers").encode(REQUEST, 1))
            await until(lambda: server.requests)
            peer.send_multipart(Codec("answers").encode(REQUEST, 2))
            time.sleep(0.05)  # noqa: ASYNC251
            server.rpc.reply(server.requests[0][0], Pong(role="", job=""))
            await until(lambda: len(server.requests) == 2)
        server.rpc.close()

    run(main())


def test_an_unanswered_request_is_repeated_and_answered_once(run: Run) -> None:
    async def main() -> None:
        async with pair(retry_s=0.02, retry_max_s=0.05) as (server, client):
            answers: list[Message | EdlzError] = []
            request_id = client.send(REQUEST, answers.append)
            await until(lambda: len(server.requests) >= 4)
            assert {to.request_id for to, _ in server.requests} == {request_id}
            assert {body for _, body in server.requests} == {REQUEST}
            copies = list(server.requests)
            for to, _ in copies:
                server.rpc.reply(to, part(np.ones(2, np.float32)))
            await until(lambda: client.traffic.dropped >= len(copies) - 1)
            assert len(answers) == 1
            count = len(server.requests)
            await asyncio.sleep(0.12)
            assert len(server.requests) <= count + 1  # one may have been on its way

    run(main())


def test_intervals_grow_up_to_a_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    intervals: list[tuple[float, float]] = []  # at most, at least

    async def main() -> None:
        async with pair(retry_s=0.01, retry_max_s=0.03) as (_, client):
            clock, dispatch = asyncio.get_running_loop().time, client._dispatch

            def noting_dispatch(request: Any) -> bool:
                before = clock()
                is_sent = dispatch(request)
                intervals.append((request.due_at - before, request.due_at - clock()))
                return is_sent

            monkeypatch.setattr(client, "_dispatch", noting_dispatch)
            client.send(REQUEST, lambda answer: None)
            await until(lambda: len(intervals) >= 7)

    run(main())
    due = [0.01, 0.02, *[0.03] * 5]
    assert all(at_most >= 0.8 * interval for (at_most, _), interval in zip(intervals, due, strict=False))
    assert all(at_least <= 1.2 * interval for (_, at_least), interval in zip(intervals, due, strict=False))
    assert len(set(intervals)) > 2  # with jitter


def test_a_deadline_names_endpoint_and_seconds(run: Run, address: str) -> None:
    async def main() -> None:
        client = RpcClient(address, role="worker", identity="0")
        got = await outcome_of(client.request(REQUEST, 0.1))
        assert isinstance(got, PeerUnavailable)
        assert got.message == f"{address} could not be reached for ReadVector within 0.1 s"
        server = Server(address)
        await until(lambda: client.is_connected)
        client.send(
            NewestPull(), lambda answer: None, deadline_s=60
        )  # a later one, by which the timer is set
        got = await outcome_of(client.request(REQUEST, 0.2))
        assert isinstance(got, PeerUnavailable)
        assert got.message == f"{address} took ReadVector but did not answer within 0.2 s"
        assert len(server.requests) == 2
        client.close()
        server.rpc.close()

    run(main())


def test_a_cancelled_request_gets_no_answer_and_frees_its_place(run: Run) -> None:
    async def main() -> None:
        async with pair(credits=1, retry_s=60) as (server, client):
            answers: list[Message | EdlzError] = []
            first = client.send(REQUEST, answers.append)
            waiting = client.send(REQUEST, answers.append)
            third = client.send(NewestPull(), answers.append)
            await until(lambda: server.requests)
            client.cancel(waiting)
            client.cancel(first)
            client.cancel(first)
            await until(lambda: len(server.requests) == 2)
            assert [to.request_id for to, _ in server.requests] == [first, third]
            for to, _ in server.requests:
                server.rpc.reply(to, part(np.ones(1, np.float32)))
            await until(lambda: answers)
            assert len(answers) == 1
            assert client.traffic.dropped == 1

    run(main())


def test_a_deadline_that_is_over_already(run: Run) -> None:
    """uvloop's `call_at` returns no TimerHandle for a time that has passed, as after a long stall."""

    async def main() -> None:
        async with pair() as (_, client):
            answers: list[object] = []
            for _ in range(3):
                client.send(REQUEST, answers.append, deadline_s=-1.0)
            await until(lambda: len(answers) == 3)
            assert all(isinstance(answer, PeerUnavailable) for answer in answers)

    run(main())


def test_a_request_past_its_deadline_frees_its_place(run: Run) -> None:
    async def main() -> None:
        async with pair(credits=1, retry_s=60) as (server, client):
            answers: list[Message | EdlzError] = []
            client.send(REQUEST, answers.append, deadline_s=0.05)
            client.send(NewestPull(), answers.append)
            await until(lambda: len(server.requests) == 2)
            assert [type(answer) for answer in answers] == [PeerUnavailable]

    run(main())


def test_an_answer_may_cancel_what_is_due_at_the_same_time(run: Run) -> None:
    async def main() -> None:
        async with pair() as (_, client):
            answers: list[Message | EdlzError] = []
            others: list[int] = []

            def on_answer(answer: Message | EdlzError) -> None:
                answers.append(answer)
                client.cancel(others[0])

            client.send(REQUEST, on_answer, deadline_s=0.05)
            others.append(client.send(REQUEST, answers.append, deadline_s=0.05))
            time.sleep(0.1)  # noqa: ASYNC251  both are due when the timer rings
            await until(lambda: answers)
            await asyncio.sleep(0.02)
            assert len(answers) == 1
            assert not client.failed.done()

    run(main())


def test_who_stops_waiting_cancels(run: Run) -> None:
    async def main() -> None:
        async with pair(retry_s=0.02) as (server, client):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.request(REQUEST, 60)
            count = len(server.requests)
            assert count > 0
            await asyncio.sleep(0.1)
            assert len(server.requests) <= count + 1

    run(main())


def test_credits_bound_what_is_under_way_and_what_waits_is_bounded_too(run: Run) -> None:
    async def main() -> None:
        async with pair(credits=2, max_waiting=3) as (server, client):
            answers: list[Message | EdlzError] = []
            sent = [client.send(REQUEST, answers.append) for _ in range(5)]
            with pytest.raises(PeerUnavailable, match="3 requests wait"):
                client.send(REQUEST, answers.append)
            await client_has_no_more(server, 2)
            for count in range(5):
                server.rpc.reply(server.requests[count][0], part(np.ones(1, np.float32)))
                await client_has_no_more(server, min(count + 3, 5))
            await until(lambda: len(answers) == 5)
            assert [to.request_id for to, _ in server.requests] == sent

    async def client_has_no_more(server: Server, count: int) -> None:
        await until(lambda: len(server.requests) == count)
        await asyncio.sleep(0.01)
        assert len(server.requests) == count

    run(main())


def test_what_the_server_holds_takes_no_credit(run: Run) -> None:
    """More requests than credits, none of which is answered before all of them, and others, have come."""
    count = 40

    async def main() -> None:
        async with pair(credits=1, max_waiting=1) as (server, client):
            answers: list[Message | EdlzError] = []
            held = push_of(np.zeros(1, np.float32))
            for _ in range(count):
                client.send(held, answers.append)
            client.send(REQUEST, answers.append)
            await until(lambda: len(server.requests) == count + 1)
            for to, _ in server.requests:
                server.rpc.reply(to, part(np.ones(1, np.float32)))
            await until(lambda: len(answers) == count + 1)

    run(main())


def test_closing_a_client_ends_all_waiting(run: Run) -> None:
    async def main() -> None:
        async with pair() as (server, client):
            answers: list[Message | EdlzError] = []
            client.send(REQUEST, answers.append, deadline_s=0.02)
            asking = asyncio.ensure_future(client.request(REQUEST, 60))
            await until(lambda: len(server.requests) == 2)
            client.close()
            client.close()
            assert isinstance(await outcome_of(asking), PeerUnavailable)
            for to, _ in server.requests:
                server.rpc.reply(to, part(np.ones(1, np.float32)))
            await asyncio.sleep(0.05)
            assert answers == []

    run(main())


def test_an_answer_to_a_peer_that_is_gone_is_dropped(run: Run) -> None:
    async def main() -> None:
        async with pair() as (server, client):
            with raw_peer(server.rpc.endpoint) as peer:
                peer.send_multipart(Codec("answers").encode(REQUEST, 1))
                await until(lambda: server.requests)
            to = server.requests[0][0]
            await until(lambda: _drops(server, to))
            assert isinstance(await client.request(Ping(), 5), Pong)

    def _drops(server: Server, to: ReplyTo) -> bool:
        before = server.rpc.traffic.dropped
        server.rpc.reply(to, Pong(role="", job=""))
        return server.rpc.traffic.dropped > before

    run(main())


def test_a_peer_that_comes_back_while_the_server_is_busy_is_heard(run: Run) -> None:
    """Without ROUTER_HANDOVER its second connection is ignored for ever."""

    async def main() -> None:
        server = Server()
        for number in (1, 2):
            with raw_peer(server.rpc.endpoint, b"worker/0/boot") as peer:
                peer.send_multipart(Codec("answers").encode(Ping(), number))
                if number == 2:
                    time.sleep(0.1)  # noqa: ASYNC251  the server is busy, its socket not looked at
                assert (await received(peer))[0] == number
            time.sleep(0.1)  # noqa: ASYNC251
        server.rpc.close()

    run(main())


# ---------------------------------------------------------------- what is no request


def test_a_thousand_malformed_messages_do_no_harm(
    run: Run, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(3)
    good = [bytes(frame) for frame in Codec("answers").encode(push_of(np.ones(50, np.float32)), 7)]

    def malformed() -> list[bytes]:
        kind = rng.randrange(4)
        if kind == 0:
            return [rng.randbytes(rng.randrange(300)) for _ in range(rng.randrange(1, 6))]
        if kind == 1:
            return [good[0][: rng.randrange(len(good[0]))], *good[1:]]
        if kind == 2:
            return [msgspec.msgpack.encode((rng.choice([0, 2, "1"]), 7, [1], []))]
        return [good[0], *[rng.randbytes(rng.randrange(100)) for _ in range(rng.randrange(4))]]

    async def main() -> None:
        async with pair(address) as (server, client):
            with raw_peer(server.rpc.endpoint) as peer:
                for _ in range(1000):
                    peer.send_multipart(malformed())
                await until(lambda: server.rpc.traffic.malformed + server.rpc.traffic.requests == 1000)
                assert server.rpc.traffic.malformed > 900
                peer.send_multipart(good)
                await until(lambda: server.requests and server.requests[-1][0].request_id == 7)
            assert isinstance(await client.request(Ping(), 5), Pong)

    run(main())
    assert 1 <= len([r for r in caplog.records if r.message.startswith("malformed message")]) <= 2


def test_a_peer_of_another_version_is_told(run: Run) -> None:
    async def main() -> None:
        server = Server()
        with raw_peer(server.rpc.endpoint) as peer:
            peer.send(msgspec.msgpack.encode((PROTOCOL_VERSION + 1, 99, "something", "new")))
            request_id, answer = await received(peer)
        assert request_id == 99
        assert isinstance(answer, ErrorReply)
        assert answer.code == "remote-protocol"
        assert f"speaks protocol version {PROTOCOL_VERSION + 1}" in answer.message
        server.rpc.close()

    run(main())


def test_a_malformed_answer_is_an_error_at_once(run: Run) -> None:
    async def main() -> None:
        context = zmq.Context()
        server = context.socket(zmq.ROUTER)
        port = server.bind_to_random_port("tcp://127.0.0.1")
        client = RpcClient(f"tcp://127.0.0.1:{port}", role="worker", identity="0")
        asking = asyncio.ensure_future(client.request(REQUEST, 60))
        await until(lambda: server.poll(0))
        peer = server.recv_multipart()[0]
        server.send_multipart([peer, b"rubbish"])
        server.send_multipart([peer, msgspec.msgpack.encode((PROTOCOL_VERSION, 1, [999], []))])
        got = await outcome_of(asking)
        assert isinstance(got, RemoteProtocolError)
        assert client.traffic.malformed == 2
        client.close()
        server.close(0)
        context.term()

    run(main())


def test_what_is_too_large_is_refused_by_the_sender(run: Run) -> None:
    async def main() -> None:
        async with pair(limits=Limits(message_bytes=3_000_000)) as (_, client):
            with pytest.raises(LocalProtocolError, match="at most 3000000"):
                client.send(push_of(np.zeros(1_000_000, np.float32)), lambda answer: None)
            assert isinstance(await client.request(Ping(), 5), Pong)

    run(main())


def test_what_is_too_large_is_refused_by_the_server(run: Run) -> None:
    async def main() -> None:
        server = Server(limits=Limits(message_bytes=3_000_000))
        with raw_peer(server.rpc.endpoint) as peer:
            peer.send_multipart(Codec("answers").encode(push_of(np.zeros(1_000_000, np.float32)), 5))
            request_id, answer = await received(peer)
            assert request_id == 5
            assert isinstance(answer, ErrorReply)
            assert "at most 3000000" in answer.message
            with contextlib.closing(peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)) as monitor:
                peer.send(bytes(2_000_001))  # ZeroMQ drops the connection, before it allocates anything
                await until(lambda: monitor.poll(0))
                peer.disable_monitor()
        with raw_peer(server.rpc.endpoint, b"other") as peer:
            peer.send_multipart(Codec("answers").encode(Ping(), 7))
            assert (await received(peer))[0] == 7
        assert server.rpc.traffic.malformed == 1
        server.rpc.close()

    run(main())


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("endpoint", "complaint"),
    [
        ("tcp://0.0.0.0:5000", "binding beyond this machine needs encryption"),
        ("tcp://*:5000", "binding beyond this machine needs encryption"),
        ("tcp://10.0.0.1:5000", "binding beyond this machine needs encryption"),
        ("tcp://[::]:5000", "binding beyond this machine needs encryption"),
        ("tcp://::1:5000", "is not an IP address of this machine"),
        ("tcp://example.org:5000", "is not an IP address of this machine"),
        ("tcp://:5000", "is not an IP address of this machine"),
        ("tcp://eth0:5000", "is not an IP address of this machine"),
        ("tcp://127.0.0.1", "is not an IP address of this machine"),
        ("tcp://127.0.0.1:65536", "'65536' is not a port"),
        ("tcp://127.0.0.1:http", "'http' is not a port"),
        ("tcp://127.0.0.1:-1", "'-1' is not a port"),
        ("udp://127.0.0.1:5000", "is not an endpoint"),
        ("127.0.0.1:5000", "is not an endpoint"),
        ("", "is not an endpoint"),
        ("ipc://", "names no socket file"),
        ("ipc://*", "names no socket file"),
        ("ipc://@abstract", "names no socket file"),
        ("ipc:///tmp/" + "x" * 103, "has 108 bytes; the system allows 107"),
    ],
)
def test_other_endpoints_are_refused(endpoint: str, complaint: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError) as caught:
            Server(endpoint)
        assert complaint in caught.value.message
        assert caught.value.help

    asyncio.run(main())


@pytest.mark.parametrize(
    "endpoint", ["tcp://10.0.0.1:5000", "tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "ipc://"]
)
def test_a_client_is_refused_them_too(endpoint: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError):
            RpcClient(endpoint, role="worker", identity="0")

    asyncio.run(main())


def test_the_longest_path_is_that_of_zeromq() -> None:
    path = "/tmp/" + "x" * (zmq.IPC_PATH_MAX_LEN - 5)
    assert parse_endpoint(f"ipc://{path}").path == path
    with pytest.raises(ConfigError, match="bytes"):
        parse_endpoint(f"ipc://{path}x")


def test_a_port_in_use_is_named() -> None:
    async def main() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            with pytest.raises(LaunchError, match=f"port {port} is in use") as caught:
                Server(f"tcp://127.0.0.1:{port}")
            assert "--port=0" in caught.value.help

    asyncio.run(main())


def test_a_socket_file_is_private_and_replaced_only_when_its_owner_is_dead() -> None:
    async def main() -> None:
        with _short_folder() as folder:
            path = folder / "server"
            server = Server(f"ipc://{path}")
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(LaunchError, match="in use by another process"):
                Server(f"ipc://{path}")
            server.rpc.close()
            assert not path.exists()
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(path))
            async with pair(f"ipc://{path}") as (_, client):
                assert isinstance(await client.request(Ping(), 5), Pong)

    asyncio.run(main())


def test_a_file_that_is_no_socket_is_left_alone() -> None:
    async def main() -> None:
        with _short_folder() as folder:
            folder.mkdir()
            path = folder / "precious"
            path.write_text("data")
            with pytest.raises(LaunchError, match="is not a socket"):
                Server(f"ipc://{path}")
            assert path.read_text() == "data"
            with pytest.raises(LaunchError, match=r"File exists: .*precious"):
                Server(f"ipc://{path}/server")

    asyncio.run(main())


# ---------------------------------------------------------------- memory that is shared with ZeroMQ


@pytest.mark.parametrize("count", [16, 100_000, 1_000_000], ids=["copied", "shared", "in pieces"])
def test_an_answer_lets_go_of_its_array_when_it_has_left(run: Run, count: int) -> None:
    arrays: list[weakref.ref[Any]] = []

    def answer(body: Message) -> Message:
        # As a partition lends a buffer: a read-only array over it, whose death says that it is free.
        values = np.frombuffer(np.ones(count, np.float32).data.toreadonly(), np.float32)
        arrays.append(weakref.ref(values))
        return part(values)

    async def main() -> None:
        async with pair(answer=answer) as (_, client):
            got = await client.request(REQUEST, 5)
            assert isinstance(got, VectorPart)
            assert got.values.sum() == count
            await until(lambda: arrays[0]() is None)

    run(main())


def test_an_answer_holds_its_array_until_it_has_left(run: Run) -> None:
    """Nobody reads: the array is held, by ZeroMQ alone, and let go of when the peer is gone."""

    async def main() -> None:
        server = Server()
        with raw_peer(server.rpc.endpoint) as peer:
            peer.setsockopt(zmq.RCVHWM, 1)
            peer.send_multipart(Codec("answers").encode(REQUEST, 1))
            await until(lambda: server.requests)
            values = np.ones(30_000_000, np.float32)
            array = weakref.ref(values)
            for _ in range(3):
                server.rpc.reply(server.requests[0][0], part(values))
            del values
            await asyncio.sleep(0.05)
            assert array() is not None
        await until(lambda: array() is None)
        server.rpc.close()

    run(main())


def test_a_request_holds_its_array_until_it_is_answered(run: Run) -> None:
    async def main() -> None:
        async with pair() as (server, client):
            values = np.ones(1_000_000, np.float32)
            array = weakref.ref(values)
            client.send(push_of(values), lambda answer: None)
            del values
            await until(lambda: server.requests)
            await asyncio.sleep(0.02)
            assert array() is not None
            server.rpc.reply(server.requests[0][0], Pong(role="", job=""))
            await until(lambda: array() is None)

    run(main())


def test_a_large_request_is_not_repeated_while_a_copy_has_not_left(run: Run) -> None:
    """Its server reads nothing (its process is stopped, say): repetitions would only pile up."""

    async def main() -> None:
        context = zmq.Context()
        server = context.socket(zmq.ROUTER)
        server.setsockopt(zmq.RCVHWM, 1)
        port = server.bind_to_random_port("tcp://127.0.0.1")
        client = RpcClient(
            f"tcp://127.0.0.1:{port}", role="worker", identity="0", retry_s=0.01, retry_max_s=0.01
        )
        await until(lambda: client.is_connected)
        for _ in range(3):
            client.send(push_of(np.ones(10_000_000, np.float32)), lambda answer: None)
        await asyncio.sleep(0.4)
        assert 3 <= client.traffic.requests < 10
        client.close()
        server.close(0)
        context.term()

    run(main())


def test_log_lines_are_rare_and_count_what_they_leave_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("edlz.services.transport.traffic.time.monotonic", lambda: now)
    log = RareLog(logging.getLogger("edlz"))
    for _ in range(10):
        log.warning("odd: %s", 1)
    log.warning("even: %s", 2)
    now += LOG_EVERY_S
    log.warning("odd: %s", 3)
    assert [r.message for r in caplog.records] == ["odd: 1", "even: 2", "odd: 3 (and 9 like it before)"]

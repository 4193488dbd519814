"""What is no message, or too large, is refused, and the log does not fill with it."""

import asyncio
import contextlib
import logging
import random

import msgspec
import numpy as np
import pytest
import zmq

from edlz.services.errors import (
    LocalProtocolError,
    RemoteProtocolError,
)
from edlz.services.protocol.messages import (
    ErrorReply,
    Ping,
    Pong,
)
from edlz.services.transport.codec import PROTOCOL_VERSION, Codec
from edlz.services.transport.limits import Limits
from edlz.services.transport.rpc import RpcClient
from edlz.services.transport.traffic import LOG_EVERY_S, RareLog
from tests.loops import Run
from tests.rpc_peers import REQUEST, Server, outcome_of, pair, push_of, raw_peer, received, until


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

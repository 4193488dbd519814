"""Arrays that ZeroMQ sends from where they lie are held until they have left, and no longer."""

import asyncio
import weakref
from typing import Any

import numpy as np
import pytest
import zmq

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    Pong,
    VectorPart,
)
from edlz.services.transport.codec import Codec
from edlz.services.transport.rpc import RpcClient
from tests.loops import Run
from tests.rpc_peers import REQUEST, Server, pair, part, push_of, raw_peer, until


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


def test_a_large_answer_is_not_repeated_while_a_copy_has_not_left(run: Run) -> None:
    """Who asks again reads slowly, or not at all: a second copy would come behind the first."""

    async def main() -> None:
        server = Server()
        with raw_peer(server.rpc.endpoint) as peer:
            peer.setsockopt(zmq.RCVHWM, 1)
            for number in range(5):
                peer.send_multipart(Codec("answers").encode(REQUEST, number))
            await until(lambda: len(server.requests) == 5)
            *others, last = (to for to, _ in server.requests)
            for to in (*others, last, last, last):
                server.rpc.reply(to, part(np.ones(10_000_000, np.float32)))
            assert server.rpc.traffic.answers == 5
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

"""Servers, clients and plain sockets that speak with each other over sockets of this machine."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from edlz.services.errors import (
    EdlzError,
)
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    Exchange,
    Push,
    ReadVector,
    VectorPart,
)
from edlz.services.transport.codec import Codec
from edlz.services.transport.limits import Limits
from edlz.services.transport.rpc import ReplyTo, RpcClient, RpcServer

__all__ = [
    "ANY_PORT",
    "LIMIT_S",
    "REQUEST",
    "Server",
    "outcome_of",
    "pair",
    "part",
    "push_of",
    "raw_peer",
    "received",
    "short_folder",
    "until",
]

ANY_PORT = "tcp://127.0.0.1:0"
REQUEST = ReadVector(vector="dense", first=0, count=3)
LIMIT_S = 10.0


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder that does not exist, with a name short enough for a socket's path, as pytest's own need not be."""
    with tempfile.TemporaryDirectory(prefix="edlz-", dir="/tmp") as base:
        yield Path(base) / "sockets"


async def until(is_true: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
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

"""A pod's port on this machine, through the WebSocket that an API server offers for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from kubernetes.aio.client import Configuration

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import NotFound
from edlz.k8s.cluster.connection import Connection
from edlz.k8s.cluster.port_forward import forward

PATH = "/api/v1/namespaces/research/pods/master/portforward"
PORT = 50002


class Server:
    """An API server that lets one pod be reached; at its port somebody answers in capitals."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.is_open = is_open
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.WebSocketResponse:
        self.asked.append(request.path_qs)
        tunnel = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await tunnel.prepare(request)
        for channel in (0, 1):
            await tunnel.send_bytes(bytes([channel]) + PORT.to_bytes(2, "little"))
        if not self.is_open:
            await tunnel.send_bytes(b"\1nobody listens there")
        async for message in tunnel:
            if message.type is WSMsgType.BINARY:
                await tunnel.send_bytes(b"\0" + message.data[1:].upper())
        return tunnel


def served(server: Server, work: Callable[[Cluster, int], Awaitable[None]]) -> None:
    async def run() -> None:
        app = web.Application()
        app.router.add_get(PATH, server.answer)
        runner: Any = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        configuration = Configuration(host=f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}")  # type: ignore[union-attr]
        try:
            async with asyncio.timeout(60), Cluster(Connection(configuration, "research")) as cluster:
                listening = await forward(cluster, "master", PORT)
                async with listening:
                    await work(cluster, listening.sockets[0].getsockname()[1])
        finally:
            await runner.cleanup()

    asyncio.run(run())


def test_bytes_go_both_ways_and_each_connection_is_a_tunnel() -> None:
    async def work(cluster: Cluster, port: int) -> None:
        for text in (b"get /", b"x" * 200_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            assert await reader.readexactly(len(text)) == text.upper()
            writer.close()

    server = Server()
    served(server, work)
    assert server.asked == [f"{PATH}?ports={PORT}"] * 3, "the first one only shows that there is a way"


def test_where_nobody_listens_the_connection_ends() -> None:
    async def work(cluster: Cluster, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()

    server = Server(is_open=False)
    served(server, work)
    assert len(server.asked) == 2


def test_a_server_that_refuses_says_so_before_anybody_connects() -> None:
    async def work(cluster: Cluster, port: int) -> None:
        with pytest.raises(NotFound, match="portforward of pod other: HTTP 404"):
            await forward(cluster, "other", PORT)

    served(Server(), work)

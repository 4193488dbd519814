"""The small server under the status page: what it answers, what it refuses, and how much others can take of it."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping

import pytest

from edlz.services.master.page import http
from edlz.services.master.page.http import Answer, HttpServer

OK = b"HTTP/1.1 200 OK"


async def hello(query: Mapping[str, str]) -> Answer:
    return Answer(f"hello {int(query.get('since', '0'))}".encode(), "text/plain")


async def broken(query: Mapping[str, str]) -> Answer:
    raise KeyError("a bug")


def served(work: Callable[[int], Awaitable[None]], names: tuple[str, ...] = ()) -> None:
    """Run some work against a server at a port."""

    async def both() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = HttpServer(listening, {"/": hello, "/broken": broken}, names)
        serving = asyncio.create_task(server.run(), name="server")
        try:
            async with asyncio.timeout(60):
                await work(port)
            assert not serving.done()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            server.close()

    asyncio.run(both())


async def ask(port: int, request: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.encode())
        return await reader.read()
    finally:
        writer.close()


def got(port: int, path: str = "/", host: str = "localhost", method: str = "GET") -> Awaitable[bytes]:
    return ask(port, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")


def test_what_it_answers() -> None:
    async def work(port: int) -> None:
        answer = await got(port, "/?since=7")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(OK)
        assert body == b"hello 7"
        assert b"Content-Length: 7" in head
        assert b"X-Content-Type-Options: nosniff" in head
        assert (await got(port, method="HEAD")).endswith(b"\r\n\r\n")

    served(work)


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        ("GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
        ("GET /?since=x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n", 500),
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * 40_000 + "\r\n\r\n", 431),
    ],
)
def test_what_it_refuses(request_text: str, code: int) -> None:
    async def work(port: int) -> None:
        assert (await ask(port, request_text)).startswith(f"HTTP/1.1 {code} ".encode())
        assert (await got(port)).startswith(OK), "and others are answered"

    served(work)


def test_a_name_that_was_made_to_point_here_is_answered_nothing() -> None:
    async def work(port: int) -> None:
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1:50002", "[::1]:8", "10.0.0.7", "lab.example:9"):
            assert (await got(port, host=host)).startswith(OK), host
        for host in (
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[::1",
            "a@localhost:x",
        ):
            assert (await got(port, host=host)).startswith(b"HTTP/1.1 421 "), host

    served(work, ("lab.example",))


def test_many_slow_browsers_keep_nobody_out_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "DEADLINE_S", 0.3)

    async def work(port: int) -> None:
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(http.MOST_CONNECTIONS + 20)]
        for _, writer in slow[::2]:
            writer.write(b"GET / HTTP/1.1\r\nHost:")  # and never the rest
        assert (await got(port)).startswith(OK)
        for reader, writer in slow:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b"", "they were closed"
            writer.close()

    served(work)


def test_a_browser_that_reads_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "DEADLINE_S", 0.3)
    big = b"x" * 50_000_000

    async def large(query: Mapping[str, str]) -> Answer:
        return Answer(big)

    async def both() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(listening, {"/": large})
        serving = asyncio.create_task(server.run(), name="server")
        _, writer = await asyncio.open_connection("127.0.0.1", listening.getsockname()[1])
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(60):
            for free in (
                http.MOST_CONNECTIONS - 2,
                http.MOST_CONNECTIONS - 1,
            ):  # its place is taken, and free again
                while server._slots._value != free:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        writer.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        server.close()

    asyncio.run(both())

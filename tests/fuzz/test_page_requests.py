"""Requests of anybody to the server under the status page: it answers, or hangs up, and goes on."""

import asyncio
import random
import re
import socket
from collections.abc import Mapping

import pytest

from edlz.services.master.page import http
from edlz.services.master.page.http import Answer, HttpServer
from tests.fuzz.fuzzing import cases, damaged, every_case

pytestmark = pytest.mark.fuzz

FULL = 10_000
A_SERVER = 50  # requests that one server is sent, at once
REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
    b"HEAD /status?since=7&x=%41%ff HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
)
ODD_WORDS = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b":",
        b"Host: localhost\r\n",
        b"Host:\r\n",
        b" ",
        b"\t",
        b"\0",
        b"\xff\xfe",
    ),
    *(
        b"%",
        b"%00",
        b"?",
        b"&" * 40,
        b"a=b&" * 40,
        b"HTTP/9.9",
        b"POST",
        b"[",
        b"]",
        b"[::1",
        b"999.1.1.1",
        b"x" * 20_000,
    ),
)


def a_request(chance: random.Random) -> bytes:
    request = chance.choice(REQUESTS)
    if chance.random() < 0.5:
        return damaged(chance, request)
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(request) + 1)
        request = request[:place] + chance.choice(ODD_WORDS) + request[place + chance.choice((0, 0, 1, 8)) :]
    return request


async def count(query: Mapping[str, str]) -> Answer:
    return Answer(f"{int(query.get('since', '0'))}".encode(), "text/plain")


async def ask(port: int, request: bytes) -> bytes:
    """Send a request, and perhaps the end of the stream; return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        writer.write_eof()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def ask_all(requests: list[bytes]) -> list[bytes]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = HttpServer(listening, {"/": count, "/status": count, "/metrics": count}, ("page.example",))
    serving = asyncio.create_task(server.run(), name="server")
    try:
        answers = await asyncio.gather(*(ask(port, request) for request in requests))
        assert await ask(port, REQUESTS[0]) != b""
        assert not serving.done()
        return answers
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        server.close()


def test_any_request_is_answered_or_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "PAUSE_S", 0.0)

    def play(chance: random.Random) -> None:
        for answer in asyncio.run(ask_all([a_request(chance) for _ in range(A_SERVER)])):
            head, _, body = answer.partition(b"\r\n\r\n")
            if answer:
                assert re.match(rb"HTTP/1\.1 (200|400|404|405|421|431) ", answer)
                length = re.search(rb"Content-Length: (\d+)", head)
                assert length is not None
                assert len(body) in (0, int(length[1]))
        assert not caplog.records, "a request is nothing to log an error for"

    every_case(cases(few=4, full=FULL // A_SERVER), play)

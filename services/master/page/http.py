"""A server of a few small answers over HTTP/1.1: it reads, bounds what others can take, and never writes anything.

Theory of operation.  It lives on the loop of a service whose own work comes first.  So it accepts one connection after
the other, at most some hundred a second, and holds at most MOST_CONNECTIONS at a time; the others wait in the
kernel's queue.  A connection carries one request, of a few kilobytes, and all of it has to be over within DEADLINE_S, however slowly
its other end reads or writes.  Whoever is asked under a name that is none of this server's is asked by a page of somebody
else's whose name was made to point here (DNS rebinding), and answers nothing.
"""

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from edlz.services.process.descriptors import is_short_of_descriptors

__all__ = ["DEADLINE_S", "MOST_CONNECTIONS", "Answer", "Ask", "HttpServer", "Refusal", "host_of"]

MOST_CONNECTIONS = 64
DEADLINE_S = 10.0
PAUSE_S = 0.004  # between two connections
SPARE_DESCRIPTORS = 64  # that the service's own work may need
_MOST_HEAD = 16 * 1024
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path answers with."""

    body: bytes
    kind: str = "application/json"
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """A request that gets no answer but this code."""

    def __init__(self, code: int) -> None:
        super().__init__(_REASONS[code])
        self.code = code


Ask = Callable[[Mapping[str, str]], Awaitable[Answer]]


def host_of(text: str) -> str:
    """Return the host of a Host header in lower case and without brackets; nothing if it is none."""
    found = _HOST.fullmatch(text)
    return found[1].strip("[]").lower() if found else ""


class HttpServer:
    """Answers GET and HEAD on some paths.

    Parameters
    ----------
    listening : socket
        Bound, and listening; it is closed with the server.
    paths : mapping of str to callable
        By path: takes the query, returns the answer.
    names : sequence of str
        The host names under which it may be asked, beside `localhost` and IP addresses.
    """

    def __init__(self, listening: socket.socket, paths: Mapping[str, Ask], names: Sequence[str] = ()) -> None:
        self._listening, self._paths = listening, paths
        self._names = frozenset(("localhost", *(name.lower() for name in names)))
        self._slots = asyncio.Semaphore(MOST_CONNECTIONS)
        listening.setblocking(False)

    def close(self) -> None:
        """Free the port."""
        self._listening.close()

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as connections:
            while True:
                await self._slots.acquire()
                await self._somebody_comes()
                try:
                    accepted, _ = self._listening.accept()
                except OSError as error:  # no descriptor is left, or it has gone again
                    self._slots.release()
                    logger.debug("no connection: %s", error)
                    await asyncio.sleep(1.0)
                    continue
                if is_short_of_descriptors(SPARE_DESCRIPTORS):
                    accepted.close()
                    self._slots.release()
                    await asyncio.sleep(1.0)
                    continue
                connections.create_task(self._serve(accepted), name="page")
                await asyncio.sleep(PAUSE_S)

    async def _somebody_comes(self) -> None:
        """Wait for a connection without taking it: one that was taken when this is cancelled would stay open."""
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_reader(self._listening.fileno(), came.set)
        try:
            await came.wait()
        finally:
            loop.remove_reader(self._listening.fileno())

    async def _serve(self, accepted: socket.socket) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                accepted.setblocking(False)
                reader, writer = await asyncio.open_connection(sock=accepted, limit=_MOST_HEAD)
                writer.write(await self._answer_to(reader))
                writer.write_eof()
                await writer.drain()
                await reader.read(1)  # until the other end has it: closed at once, it may not get all of it
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # it was too slow, or has gone
        except Exception:  # never the end of the service
            logger.exception("a connection to the status page failed")
        finally:
            if writer is not None:
                writer.transport.abort()
            else:
                accepted.close()
            self._slots.release()

    async def _answer_to(self, reader: asyncio.StreamReader) -> bytes:
        is_head = False
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, headers = _parsed(head)
            is_head = method == "HEAD"
            answer = await self._answered(method, target, headers)
        except asyncio.LimitOverrunError:
            answer = _told(431)
        except Refusal as refusal:
            answer = _told(refusal.code)
        return _encoded(answer, with_body=not is_head)

    async def _answered(self, method: str, target: str, headers: Mapping[str, str]) -> Answer:
        if not self._is_ours(headers.get("host", "")):
            raise Refusal(421)
        if method not in ("GET", "HEAD"):
            raise Refusal(405)
        path, _, query = target.partition("?")
        ask = self._paths.get(path)
        if ask is None:
            raise Refusal(404)
        try:
            return await ask(dict(parse_qsl(query, max_num_fields=10)))
        except ValueError as error:
            raise Refusal(400) from error
        except (Refusal, TimeoutError):
            raise
        except Exception:  # a page that cannot be made is no reason for the service to end
            logger.exception("%s could not be answered", path)
            raise Refusal(500) from None

    def _is_ours(self, host: str) -> bool:
        name = host_of(host)
        if name in self._names:
            return True
        with suppress(ValueError):  # a name cannot be made to look like an address
            return bool(ipaddress.ip_address(name))
        return False


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return method, target and headers of a request; a header that stands twice counts as none."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise Refusal(400)
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not line:
            continue
        if not colon or name != name.strip():
            raise Refusal(400)
        headers[name.lower()] = "" if name.lower() in headers else value.strip()
    return words[0], words[1], headers


def _told(code: int) -> Answer:
    return Answer(f"{_REASONS[code]}\n".encode(), "text/plain; charset=utf-8", code)


def _encoded(answer: Answer, *, with_body: bool) -> bytes:
    headers = {
        "Content-Type": answer.kind,
        "Content-Length": str(len(answer.body)),
        "Connection": "close",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.code} {_REASONS[answer.code]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head + answer.body if with_body else head

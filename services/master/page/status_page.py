"""The status page of a job while its master lives: where it listens, and how often it looks at the job.

Theory of operation.  The page is never in the way of the job.  However many watch it, the job is looked at once in LOOK_S
at most, and less often if that would take more than SHARE of a processor.  It is looked at on the master's loop, in some
milliseconds; what was seen becomes JSON, HTML or metrics on a thread.  Who has seen it already is told so in a few bytes.
"""

import asyncio
import logging
import math
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from edlz.services.configuration.endpoints import is_wildcard
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.ports import port_problem
from edlz.services.errors import ConfigError
from edlz.services.master.page.content import Content
from edlz.services.master.page.encoded import Encoded
from edlz.services.master.page.http import Answer, Ask, HttpServer

__all__ = ["STATUS_PORT", "StatusPage", "bound", "bound_beside"]

STATUS_PORT = 50002
LOOK_S, MOST_LOOK_S = 2.0, 15.0  # a page asks as often
SHARE = 0.001
_BACKLOG = 64
_LOOPBACK = "127.0.0.1"

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

logger = logging.getLogger(__name__)


def bound(config: JobConfig, before: int = 0) -> socket.socket | None:
    """Return a socket that listens where the page is to be; None for no page.

    Parameters
    ----------
    config : JobConfig
    before : int
        The port that the job's page had, if it had one: open pages ask there.

    Raises
    ------
    ConfigError
        If the port that was asked for is taken, or there is no such address.
    """
    if config.status_port == "none":
        return None
    host = "::" if config.status_host == "*" else config.status_host or _LOOPBACK
    if config.status_port not in ("", "0"):
        try:
            return _listening(host, int(config.status_port))
        except OSError as error:
            raise _refusal(config, error) from error
    usual = STATUS_PORT if not config.status_port else 0
    for port in dict.fromkeys((before or usual, usual, 0)):
        try:
            return _listening(host, port)
        except OSError as error:
            if port == 0:
                if config.status_host:
                    raise _refusal(config, error) from error
                logger.warning("no status page: %s", error)  # no job fails for it
    return None


def bound_beside(config: JobConfig, page: socket.socket) -> socket.socket | None:
    """Return a socket at --metrics_host, on the port of the page; None for no such place, or where it cannot be."""
    if not config.metrics_host:
        return None
    try:
        return _listening(config.metrics_host.strip("[]"), page.getsockname()[1])
    except OSError as error:
        logger.warning("no metrics at %s: %s", config.metrics_host, error)
        return None


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _refusal(config: JobConfig, error: OSError) -> ConfigError:
    busy = port_problem(int(config.status_port or 0))
    what = busy.message if busy is not None else f"the status page cannot listen: {error.strerror or error}"
    return ConfigError(
        f"--status_port={config.status_port or STATUS_PORT}: {what}",
        "--status_port=0 for a free one, or --status_port=none",
    )


class StatusPage:
    """Serves the page of one job.

    Parameters
    ----------
    listening : socket
        Where.
    look : callable
        Returns how the job stands now; called on the loop.
    host : str
        --status_host: a name under which the page may be asked.
    beside : socket, optional
        A further place, which answers with metrics and health alone.

    Attributes
    ----------
    address : str
        Its URL, for a browser on this machine.
    port : int
    """

    def __init__(
        self,
        listening: socket.socket,
        look: Callable[[], Content],
        host: str = "",
        beside: socket.socket | None = None,
    ) -> None:
        self._look = look
        self._looks = 0
        self._made_last: Encoded | None = None
        self._due_s = -math.inf  # when the job is looked at again, if somebody asks
        self._stale_s = -math.inf  # when what was seen is too old to be shown
        self._making: asyncio.Future[Encoded] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="page")
        self._page: tuple[Encoded, bytes] | None = None
        self._metrics: tuple[Content, bytes] | None = None
        paths = {"/": self._html, "/index.html": self._html, "/api/status": self._status}
        open_paths: dict[str, Ask] = {"/healthz": self._health, "/metrics": self._metrics_text}
        self._servers = [HttpServer(listening, {**paths, **open_paths}, [host] if host else [])]
        if beside is not None:  # no text of the job is in them, but its name and its numbers
            self._servers.append(HttpServer(beside, open_paths))
        bound_host, self.port = listening.getsockname()[:2]
        name = "localhost" if bound_host == _LOOPBACK or is_wildcard(bound_host) else bound_host
        self.address = f"http://{f'[{name}]' if ':' in name else name}:{self.port}"

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as serving:
            for server in self._servers:
                serving.create_task(server.run(), name="page")

    def close(self) -> None:
        """Free the port."""
        for server in self._servers:
            server.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    # -- what is asked

    async def _status(self, query: Mapping[str, str]) -> Answer:
        since, seen = int(query.get("since", "0")), int(query.get("look", "0"))
        encoded = await self._encoded()
        return Answer(encoded.unchanged() if seen == encoded.number else encoded.json(since))

    async def _html(self, _: Mapping[str, str]) -> Answer:
        encoded = await self._encoded()
        if self._page is None or self._page[0] is not encoded:
            self._page = (encoded, await self._on_thread(encoded.page))
        headers = {"Content-Security-Policy": encoded.page_policy, "X-Frame-Options": "DENY"}
        return Answer(self._page[1], "text/html; charset=utf-8", headers=headers)

    async def _health(self, _: Mapping[str, str]) -> Answer:
        return Answer(b"ok\n", "text/plain; charset=utf-8")

    async def _metrics_text(self, _: Mapping[str, str]) -> Answer:
        content = (await self._encoded()).content
        if self._metrics is None or self._metrics[0] is not content:
            self._metrics = (content, await self._on_thread(lambda: _metrics_of(content)))
        return Answer(self._metrics[1], METRICS_TYPE)

    # -- looking at the job

    async def _encoded(self) -> Encoded:
        """Return what was seen of the job lately, looking at it if nobody has; what is a little older need not be waited for."""
        now = time.monotonic()
        if now >= self._due_s:
            self._due_s = now + LOOK_S
            self._making = asyncio.ensure_future(self._made(now))
        if self._made_last is None or now >= self._stale_s:
            assert self._making is not None
            return await asyncio.shield(self._making)
        return self._made_last

    async def _made(self, now: float) -> Encoded:
        """Look at the job, and make of it what is asked for."""
        self._looks += 1
        content, number = self._look(), self._looks
        took_s = time.monotonic() - now
        encoded: Encoded = await self._on_thread(lambda: Encoded(content, number))
        pause_s = min(max(LOOK_S, (took_s + encoded.took_s) / SHARE), MOST_LOOK_S)
        self._made_last, self._due_s, self._stale_s = encoded, now + pause_s, now + 2 * pause_s
        return encoded

    async def _on_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _metrics_of(content: Content) -> bytes:
    """Return metrics as text; only who is scraped imports what makes them, on a thread."""
    text: bytes = import_module("edlz.services.master.page.metrics").metrics_text(content)
    return text

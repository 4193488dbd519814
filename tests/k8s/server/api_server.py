"""A Kubernetes API server for tests: an HTTP server on the loopback, held to the answers of a real 1.36.2.

It runs in a thread of its own, so that product processes are served while a test blocks. Controllers, scheduler
and kubelet are not here: they work on `store` (see tests/k8s/README.md).
"""

import asyncio
import base64
import shutil
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import yaml
from aiohttp import web

from tests.k8s.server.access import ADMIN, Access, User
from tests.k8s.server.certificates import make_certificate
from tests.k8s.server.faults import Faults
from tests.k8s.server.handlers import Handlers
from tests.k8s.server.objects.store import Store
from tests.k8s.server.pod_logs import Kubelet

__all__ = ["ApiServer"]

_T = TypeVar("_T")
_START_S = 30.0


class ApiServer:
    """An API server; use it with `with` or `async with`.

    Parameters
    ----------
    tls : bool
        Serve https, as pods inside a cluster expect it; clients trust `ca_file`.
    clock : callable
        Wall-clock time in seconds, for the objects' timestamps.

    Attributes
    ----------
    store : Store
        The objects; may be used from any thread.
    faults : Faults
        What is to go wrong.
    access : Access
        Users' tokens.
    """

    def __init__(self, *, tls: bool = False, clock: Callable[[], float] = time.time) -> None:
        self.store = Store(clock)
        self.faults = Faults()
        self.access = Access(self.store.history)
        self.port = 0
        self._handlers = Handlers(self.store, self.access, self.faults)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-server", daemon=True)
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._folder: Path | None = None
        self._context: ssl.SSLContext | None = None
        self.ca_file: Path | None = None
        if tls:
            self._folder = Path(tempfile.mkdtemp(prefix="edlz-ca-"))
            self._context, self.ca_file = make_certificate(self._folder)

    # -- life

    def __enter__(self) -> "ApiServer":
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._folder is not None:
            shutil.rmtree(self._folder)

    async def __aenter__(self) -> "ApiServer":
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.__exit__)

    def down(self) -> None:
        """Refuse connections and cut those that are open; the objects stay."""
        self._call(self._stop_listening())

    def up(self) -> None:
        """Listen again, on the same port."""
        self._call(self._listen())

    # -- for clients

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"

    @property
    def kubelets(self) -> dict[str, Kubelet]:
        """By node name: what is asked for the logs of the pods there."""
        return self._handlers.kubelets

    @property
    def requests(self) -> list[tuple[str, str]]:
        """Method and path of all requests so far."""
        return self._handlers.requests

    def set_bookmark_interval(self, seconds: float) -> None:
        self._handlers.bookmark_interval_s = seconds

    def set_too_large_wait(self, seconds: float) -> None:
        """How long a request for a revision of the future waits for it; 3 s, as in the original."""
        self._handlers.too_large_wait_s = seconds

    @property
    def admin_token(self) -> str:
        return self.access.token(ADMIN)

    def service_account_token(self, namespace: str, name: str = "default") -> str:
        return self.access.token(self.access.service_account(namespace, name))

    def write_kubeconfig(self, path: Path, user: User = ADMIN, namespace: str = "default") -> Path:
        """Write a kubeconfig with one context, and return its path."""
        cluster: dict[str, Any] = {"server": self.url}
        if self.ca_file is not None:
            cluster["certificate-authority-data"] = base64.b64encode(self.ca_file.read_bytes()).decode()
        name = "emulated"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user.name, "user": {"token": self.access.token(user)}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": user.name, "namespace": namespace}}
            ],
        }
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    # -- in the server's loop

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_S)

    async def _open(self) -> None:
        app = self._handlers.application()
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await self._listen()

    async def _listen(self) -> None:
        assert self._runner is not None
        assert self._site is None, "it is up"
        self._site = web.TCPSite(
            self._runner, "127.0.0.1", self.port, ssl_context=self._context, reuse_address=True
        )
        await self._site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop_listening(self) -> None:
        assert self._runner is not None
        if self._site is None:
            return
        site, self._site = self._site, None
        await self._let_in_whoever_is_accepted(site)
        await site.stop()
        server = self._runner.server
        for connection in server.connections if server is not None else ():
            if connection.transport is not None:
                connection.transport.abort()

    async def _let_in_whoever_is_accepted(self, site: web.TCPSite) -> None:
        """Accept nobody from here on; whoever was just accepted is a connection of the server then, and can be cut.

        asyncio of Python 3.11 leaves it open if the server is closed before it is attached.
        """
        for listening in site._server.sockets if site._server is not None else ():  # type: ignore[attr-defined]
            self._loop.remove_reader(listening.fileno())
        for _ in range(3):  # turns of the loop: a transport is made, then attached
            await asyncio.sleep(0)

    async def _close(self) -> None:
        await self._stop_listening()
        assert self._runner is not None
        await self._runner.cleanup()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

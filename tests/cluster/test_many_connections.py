"""Servers of few descriptors, and more connections than those: a server lives, and is there for who comes later."""

import asyncio
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from edlz.services.descriptors import raise_descriptor_limit
from edlz.services.messages import Ping, Pong
from edlz.services.rpc import RpcClient

DESCRIPTORS, CONNECTIONS = 1024, 1200
SERVER = f"""
import asyncio, logging, resource, sys
from edlz.services.descriptors import raise_descriptor_limit
from edlz.services.rpc import RpcServer

async def serve():
    server = RpcServer(sys.argv[1], lambda to, body: None, role="ps")
    print(server.endpoint, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()

logging.basicConfig()
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
raise_descriptor_limit()
asyncio.run(serve())
"""


class Server:
    def __init__(self, endpoint: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, endpoint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.endpoint = self.process.stdout.readline().strip()

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def connect(self) -> socket.socket | None:
        """Return a new silent connection; None if it is not taken at once."""
        kind, _, place = self.endpoint.partition("://")
        host, _, port = place.rpartition(":")
        connection = socket.socket(socket.AF_UNIX if kind == "ipc" else socket.AF_INET)
        connection.setblocking(False)
        try:
            connection.connect(place if kind == "ipc" else (host, int(port)))
        except (BlockingIOError, ConnectionRefusedError):
            if kind == "ipc":
                connection.close()
                return None
        return connection


@pytest.fixture(autouse=True)
def _enough_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if raise_descriptor_limit() < 2 * CONNECTIONS:
        pytest.skip(f"a process may have {before[1]} descriptors here; {2 * CONNECTIONS} are needed")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="edlz-") as path:  # short, as a socket's path must be
        yield Path(path)


async def until_pong(endpoint: str) -> None:
    client = RpcClient(endpoint, role="worker", identity="0", linger_s=0)
    try:
        assert isinstance(await client.request(Ping(), 60), Pong)
    finally:
        client.close()


async def come_and_go(server: Server) -> int:
    """Connect as long as it is possible; return how many descriptors the server had at most."""
    most = 0
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            connection = server.connect()
            if connection is None:
                break
            stack.callback(connection.close)
            if number % 16 == 0:
                most = max(most, server.open_files)
            await asyncio.sleep(0)
        if server.endpoint.startswith("tcp"):
            await until_pong(server.endpoint)
    return most


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_a_server_outlives_more_connections_than_it_has_descriptors(kind: str, folder: Path) -> None:
    server = Server("tcp://127.0.0.1:0" if kind == "tcp" else f"ipc://{folder}/s")
    try:
        for _ in range(2):
            assert asyncio.run(come_and_go(server)) < DESCRIPTORS
            asyncio.run(until_pong(server.endpoint))
        _, log = server.process.communicate()
    finally:
        with suppress(ProcessLookupError):
            server.process.kill()
    assert server.process.returncode == 0
    assert "Traceback" not in log
    assert ("no more connections are taken for now" in log) == (kind == "ipc")

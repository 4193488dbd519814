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

from edlz.services.errors import PeerUnavailable
from edlz.services.process.descriptors import raise_descriptor_limit
from edlz.services.protocol.messages import Ping, Pong
from edlz.services.transport.keys import make_job_keys
from edlz.services.transport.rpc import RpcClient, RpcServer
from edlz.services.transport.security import Security

DESCRIPTORS, CONNECTIONS = 1024, 1200
COMING_AND_GOING = 1_000
WAIT_S = 60
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
SERVER = f"""
import asyncio, logging, resource, sys
from edlz.services.process.descriptors import raise_descriptor_limit
from edlz.services.transport.rpc import RpcServer

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
        assert isinstance(await client.request(Ping(), WAIT_S), Pong)
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


def test_connections_that_come_and_go_leave_nothing_behind(folder: Path) -> None:
    async def main() -> None:
        keys = make_job_keys()
        server = RpcServer(
            "tcp://127.0.0.1:0", lambda to, body: None, role="ps", security=Security(keys.of("ps"))
        )
        gate = server._transport._gate  # type: ignore[attr-defined]
        address = "127.0.0.1", int(server.endpoint.rpartition(":")[2])
        before = len(os.listdir("/proc/self/fd"))
        for number in range(COMING_AND_GOING):
            with socket.create_connection(address) as connection:
                connection.sendall(GREETING[: number % len(GREETING)])
            if number % 50 == 0:
                client = RpcClient(
                    server.endpoint,
                    role="worker",
                    identity="0",
                    security=Security(keys.of("worker")),
                    server="ps",
                )
                assert isinstance(await client.request(Ping(), WAIT_S), Pong)
                client.close()
        async with asyncio.timeout(WAIT_S):
            while len(gate._strangers) or gate._refused._peers or len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110  it is in ZeroMQ's hands
                await asyncio.sleep(0.01)
        server.close()

    asyncio.run(main())


def test_a_client_waits_for_a_unix_socket_whose_queue_is_full(folder: Path) -> None:
    path = f"{folder}/s"

    def fill(stack: ExitStack) -> None:
        while True:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.setblocking(False)
            connection.connect(path)

    async def main() -> None:
        with ExitStack() as stack:
            busy = stack.enter_context(socket.socket(socket.AF_UNIX))
            busy.bind(path)
            busy.listen(0)
            with pytest.raises(BlockingIOError):
                fill(stack)
            client = RpcClient(f"ipc://{path}", role="worker", identity="0", linger_s=0)
            with pytest.raises(PeerUnavailable, match="could not be reached"):
                await client.request(Ping(), 0.2)
        server = RpcServer(f"ipc://{path}", lambda to, body: None, role="ps")
        assert isinstance(await client.request(Ping(), WAIT_S), Pong)
        client.close()
        server.close()

    asyncio.run(main())

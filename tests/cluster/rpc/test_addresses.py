"""Which addresses a server may have, and what becomes of its socket's file."""

import asyncio
import socket
import stat

import pytest
import zmq

from edlz.services.configuration.endpoints import parse_endpoint
from edlz.services.errors import (
    ConfigError,
    LaunchError,
)
from edlz.services.protocol.messages import (
    Ping,
    Pong,
)
from edlz.services.transport.rpc import RpcClient
from tests.rpc_peers import Server, pair, short_folder


@pytest.mark.parametrize(
    ("endpoint", "complaint"),
    [
        ("tcp://0.0.0.0:5000", "binding beyond this machine needs encryption"),
        ("tcp://*:5000", "binding beyond this machine needs encryption"),
        ("tcp://10.0.0.1:5000", "binding beyond this machine needs encryption"),
        ("tcp://[::]:5000", "binding beyond this machine needs encryption"),
        ("tcp://::1:5000", "is not an IP address of this machine"),
        ("tcp://example.org:5000", "is not an IP address of this machine"),
        ("tcp://:5000", "is not an IP address of this machine"),
        ("tcp://eth0:5000", "is not an IP address of this machine"),
        ("tcp://127.0.0.1", "is not an IP address of this machine"),
        ("tcp://127.0.0.1:65536", "'65536' is not a port"),
        ("tcp://127.0.0.1:http", "'http' is not a port"),
        ("tcp://127.0.0.1:-1", "'-1' is not a port"),
        ("udp://127.0.0.1:5000", "is not an endpoint"),
        ("127.0.0.1:5000", "is not an endpoint"),
        ("", "is not an endpoint"),
        ("ipc://", "names no socket file"),
        ("ipc://*", "names no socket file"),
        ("ipc://@abstract", "names no socket file"),
        ("ipc:///tmp/" + "x" * 103, "has 108 bytes; the system allows 107"),
    ],
)
def test_other_endpoints_are_refused(endpoint: str, complaint: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError) as caught:
            Server(endpoint)
        assert complaint in caught.value.message
        assert caught.value.help

    asyncio.run(main())


@pytest.mark.parametrize(
    "endpoint", ["tcp://10.0.0.1:5000", "tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "ipc://"]
)
def test_a_client_is_refused_them_too(endpoint: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError):
            RpcClient(endpoint, role="worker", identity="0")

    asyncio.run(main())


def test_the_longest_path_is_that_of_zeromq() -> None:
    path = "/tmp/" + "x" * (zmq.IPC_PATH_MAX_LEN - 5)
    assert parse_endpoint(f"ipc://{path}").path == path
    with pytest.raises(ConfigError, match="bytes"):
        parse_endpoint(f"ipc://{path}x")


def test_a_port_in_use_is_named() -> None:
    async def main() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            with pytest.raises(LaunchError, match=f"port {port} is in use") as caught:
                Server(f"tcp://127.0.0.1:{port}")
            assert "--port=0" in caught.value.help

    asyncio.run(main())


def test_a_socket_file_is_private_and_replaced_only_when_its_owner_is_dead() -> None:
    async def main() -> None:
        with short_folder() as folder:
            path = folder / "server"
            server = Server(f"ipc://{path}")
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(LaunchError, match="in use by another process"):
                Server(f"ipc://{path}")
            server.rpc.close()
            assert not path.exists()
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(path))
            async with pair(f"ipc://{path}") as (_, client):
                assert isinstance(await client.request(Ping(), 5), Pong)

    asyncio.run(main())


def test_a_file_that_is_no_socket_is_left_alone() -> None:
    async def main() -> None:
        with short_folder() as folder:
            folder.mkdir()
            path = folder / "precious"
            path.write_text("data")
            with pytest.raises(LaunchError, match="is not a socket"):
                Server(f"ipc://{path}")
            assert path.read_text() == "data"
            with pytest.raises(LaunchError, match=r"File exists: .*precious"):
                Server(f"ipc://{path}/server")

    asyncio.run(main())

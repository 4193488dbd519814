"""Both event loops and both kinds of addresses, for whoever tests RPC."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.loops import LOOPS, Run, runner_on
from tests.rpc_peers import LIMIT_S, short_folder


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a test's coroutine on one of the loops, within a time limit."""
    return runner_on(request.param, monkeypatch, LIMIT_S)


@pytest.fixture(params=["tcp", "ipc"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with _address(request.param) as it:
        yield it


@contextlib.contextmanager
def _address(kind: str) -> Iterator[str]:
    """Give an address that can be bound several times in turn."""
    if kind == "tcp":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        yield f"tcp://127.0.0.1:{port}"
    else:
        with short_folder() as folder:
            yield f"ipc://{folder}/server"

"""Which connections without a key a server bears, on descriptors and bytes of a table."""

import socket
import sys
import time
from contextlib import closing

import pytest

from edlz.services.transport.strangers import (
    GREETING,
    MOST_BYTES,
    PATIENCE_S,
    WELCOME,
    Bounds,
    KernelConnections,
    Peer,
    Progress,
    Strangers,
)

SILENT = Progress(received=0, acknowledged=10)
READY = Progress(received=600, acknowledged=GREETING + WELCOME + 60)
BOUNDS = Bounds(patient=3, most=8)


class Table:
    """Connections as a test wants them; descriptor d is that of port d unless said otherwise."""

    def __init__(self) -> None:
        self.ends: dict[int, Peer] = {}
        self.bytes: dict[int, Progress] = {}
        self.cut: list[int] = []

    def peer(self, descriptor: int) -> Peer | None:
        return self.ends.get(descriptor)

    def progress(self, descriptor: int) -> Progress | None:
        return self.bytes.get(descriptor, SILENT)

    def shut_down(self, descriptor: int) -> None:
        self.cut.append(descriptor)


class Server:
    def __init__(self, *, has_keys: bool = True) -> None:
        self.table = Table()
        self.strangers = Strangers(has_keys=has_keys, bounds=BOUNDS, connections=self.table)

    def come(self, *descriptors: int, at: float = 0.0, progress: Progress = SILENT) -> None:
        for descriptor in descriptors:
            self.table.ends[descriptor] = "host", descriptor
            self.table.bytes[descriptor] = progress
            self.strangers.come(descriptor, at)

    def cut_at(self, now: float, *, is_urgent: bool = False) -> list[int]:
        self.table.cut.clear()
        self.strangers.look(now, is_urgent=is_urgent)
        return list(self.table.cut)


def test_a_few_are_left_to_their_own_time() -> None:
    server = Server()
    server.come(1, 2, 3)
    assert server.cut_at(100.0) == []
    assert len(server.strangers) == 3


def test_the_oldest_of_many_go_when_they_had_time_to_show_a_key() -> None:
    server = Server()
    server.come(1, 2)
    server.come(3, 4, 5, at=PATIENCE_S / 2)
    assert server.cut_at(PATIENCE_S - 0.01) == []
    assert server.cut_at(PATIENCE_S) == [1, 2]
    assert server.strangers.cut_off == 2


def test_beyond_the_bound_the_oldest_go_at_once() -> None:
    server = Server()
    server.come(*range(8))
    assert not server.strangers.are_too_many
    server.come(8)
    assert server.strangers.are_too_many
    assert server.cut_at(0.0) == [0, 1, 2]
    assert not server.strangers.are_too_many


def test_few_descriptors_leave_no_time() -> None:
    server = Server()
    server.come(*range(5))
    assert server.cut_at(0.0, is_urgent=True) == [0, 1]


def test_who_has_finished_is_no_stranger_however_old() -> None:
    server = Server()
    server.come(1, 2, 3, progress=READY)
    server.come(*range(4, 9))
    assert server.cut_at(PATIENCE_S) == [4, 5]
    assert len(server.strangers) == 3


def test_a_welcome_alone_is_no_key() -> None:
    server = Server()
    server.come(1, 2, 3, 4, progress=Progress(received=266, acknowledged=GREETING + WELCOME))
    assert server.cut_at(PATIENCE_S) == [1]


def test_without_keys_an_introduction_is_enough() -> None:
    server = Server(has_keys=False)
    server.come(1, 2, progress=Progress(received=GREETING, acknowledged=GREETING + 30))
    server.come(3, 4, progress=Progress(received=GREETING + 40, acknowledged=10))
    server.come(5, 6)
    assert server.cut_at(PATIENCE_S) == [1]
    assert len(server.strangers) == 3


def test_who_sends_more_than_a_handshake_goes_at_once() -> None:
    server = Server()
    server.come(1, progress=Progress(received=MOST_BYTES + 1, acknowledged=64))
    server.come(2, progress=Progress(received=MOST_BYTES, acknowledged=64))
    server.come(3, progress=Progress(received=1 << 30, acknowledged=READY.acknowledged))
    assert server.cut_at(0.0) == [1]


def test_a_descriptor_that_is_another_connections_by_now_is_left_alone() -> None:
    server = Server()
    server.come(*range(5))
    server.table.ends[0] = "host", 4242
    del server.table.ends[1]
    assert server.cut_at(PATIENCE_S) == []
    assert len(server.strangers) == 3


def test_an_end_that_was_never_told_does_no_harm() -> None:
    server = Server()
    server.come(1, 2, 3, 4)
    server.come(1, at=5.0)  # accepted again: the youngest now
    assert server.cut_at(5.0) == [2]
    server.strangers.go(3)
    server.strangers.go(3)
    assert len(server.strangers) == 2


def test_connections_that_the_kernel_does_not_count_are_borne() -> None:
    server = Server()
    server.come(*range(7))
    server.table.progress = lambda descriptor: None  # type: ignore[method-assign]
    assert server.cut_at(PATIENCE_S) == []
    assert len(server.strangers) == 0


@pytest.mark.parametrize(
    ("descriptors", "bounds"), [(1024, (128, 256)), (1 << 20, (128, 2048)), (16, (4, 8))]
)
def test_bounds_follow_the_limit_of_descriptors(descriptors: int, bounds: tuple[int, int]) -> None:
    assert Bounds.within(descriptors) == Bounds(*bounds)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts a connection's bytes")
def test_the_kernel_counts_bytes_and_ends_a_connection_whose_descriptor_stays() -> None:
    kernel = KernelConnections()
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        closing(socket.create_connection(listener.getsockname())) as client,
        closing(listener.accept()[0]) as accepted,
        open("/dev/null") as file,
    ):
        assert kernel.peer(accepted.fileno()) == client.getsockname()
        client.sendall(b"x" * 100)
        assert accepted.recv(100, socket.MSG_WAITALL)
        accepted.sendall(b"y" * 70)
        assert client.recv(70, socket.MSG_WAITALL)
        end = time.monotonic() + 10
        while kernel.progress(accepted.fileno()) != Progress(received=100, acknowledged=70):
            assert time.monotonic() < end, kernel.progress(accepted.fileno())
            time.sleep(0.005)  # an acknowledgement takes its time
        kernel.shut_down(accepted.fileno())
        assert client.recv(1) == b""
        for other in (file.fileno(), 10**6):
            assert kernel.peer(other) is None
            assert kernel.progress(other) is None
            kernel.shut_down(other)
        assert file.read() == ""

"""Connections that have not shown a key yet: how many a server bears, and which it cuts off.

A connection costs a descriptor and what it sends up to one frame, before anybody can ask who it is.  ZeroMQ tells
when one comes and goes, but neither which one has finished its handshake nor a way to end one.  So here each new
one is looked at from outside, by the bytes that the kernel has counted for it, until it has finished; one that is to
go is shut down, which ZeroMQ takes for its peer's doing.  A descriptor may belong to another connection by the time
that it is looked at: its peer's address and port tell.

`Strangers` decides; below it is what it asks of the kernel (Linux, others do not count and bear all).
"""

import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

__all__ = ["Bounds", "Connections", "KernelConnections", "Progress", "Strangers"]

PATIENCE_S: Final = 1.0  # that a stranger has, when there are many
MOST_BYTES: Final = 4096  # of a handshake; its largest parts are a name and a key
# ZMTP 3.1: what a server has sent when all that it sends before its last word (READY) has been acknowledged, and
# what a client has sent before its own.
GREETING: Final = 64
WELCOME: Final = 170
SHORTEST_READY: Final = 26

Peer = tuple[object, ...]


class Progress(NamedTuple):
    """Bytes that a connection's peer has sent, and has acknowledged."""

    received: int
    acknowledged: int


class Connections(Protocol):
    """This process' connections by their descriptors, as the kernel sees them."""

    def peer(self, descriptor: int) -> Peer | None:
        """Return the other end of a connection; None if the descriptor is not a connection's."""
        ...

    def progress(self, descriptor: int) -> Progress | None:
        """Return how far a connection has come; None if that is unknown."""
        ...

    def shut_down(self, descriptor: int) -> None: ...


@dataclass(frozen=True)
class Bounds:
    """Strangers that a server bears at once: `patient` for as long as ZeroMQ does, `most` for a moment."""

    patient: int
    most: int

    @classmethod
    def within(cls, descriptors: int) -> "Bounds":
        """Return what fits a process that may have so many descriptors."""
        return cls(patient=max(min(128, descriptors // 8), 4), most=max(min(2048, descriptors // 4), 8))


class Strangers:
    """Watches the connections of one server until they have finished their handshakes.

    Parameters
    ----------
    has_keys : bool
        Whether the server encrypts.
    bounds : Bounds
    connections : Connections, optional

    Attributes
    ----------
    cut_off : int
        How many were, so far.
    """

    def __init__(self, *, has_keys: bool, bounds: Bounds, connections: Connections | None = None) -> None:
        self._has_finished: Callable[[Progress], bool] = (
            _has_shown_key if has_keys else _has_introduced_itself
        )
        self._bounds = bounds
        self._connections = connections or KernelConnections()
        self._waiting: dict[int, tuple[Peer, float]] = {}  # by descriptor: whose and since when, oldest first
        self.cut_off = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def are_too_many(self) -> bool:
        """Whether a look is due at once."""
        return len(self._waiting) > self._bounds.most

    def come(self, descriptor: int, now: float) -> None:
        """ZeroMQ has accepted a connection."""
        self._waiting.pop(descriptor, None)  # of which no end was told
        peer = self._connections.peer(descriptor)
        if peer is not None:
            self._waiting[descriptor] = peer, now

    def go(self, descriptor: int) -> None:
        """A connection has ended."""
        self._waiting.pop(descriptor, None)

    def look(self, now: float, *, is_urgent: bool = False) -> None:
        """Forget who is no stranger any more; cut off who sends too much, and the oldest of too many.

        `is_urgent`: few descriptors are left.
        """
        for descriptor, (peer, _) in list(self._waiting.items()):
            progress = self._connections.progress(descriptor)
            if progress is None or self._has_finished(progress) or self._connections.peer(descriptor) != peer:
                del self._waiting[descriptor]
            elif progress.received > MOST_BYTES:
                self._cut(descriptor)
        kept = self._bounds.patient
        if self.are_too_many and not is_urgent:
            # Well below the bound, so that the next few need no look.
            is_urgent, kept = True, max(kept, self._bounds.most * 3 // 4)
        surplus = list(self._waiting.items())[: max(len(self._waiting) - kept, 0)]
        for descriptor, (_, since) in surplus:
            if is_urgent or now - since >= PATIENCE_S:
                self._cut(descriptor)

    def _cut(self, descriptor: int) -> None:
        del self._waiting[descriptor]
        self._connections.shut_down(descriptor)
        self.cut_off += 1


def _has_shown_key(progress: Progress) -> bool:
    # WELCOME goes to who knows the server's key, READY behind it to whom the job knows.
    return progress.acknowledged > GREETING + WELCOME


def _has_introduced_itself(progress: Progress) -> bool:
    return progress.received >= GREETING + SHORTEST_READY


class KernelConnections:
    """See Connections."""

    _COUNTS: Final = struct.Struct("=QQ")  # linux/tcp.h: tcpi_bytes_acked, tcpi_bytes_received
    _OFFSET: Final = 120

    def peer(self, descriptor: int) -> Peer | None:
        with suppress(OSError), _Borrowed(descriptor) as connection:
            name = connection.getpeername()
            return name if isinstance(name, tuple) else None
        return None

    def progress(self, descriptor: int) -> Progress | None:
        if sys.platform != "linux":
            return None
        with suppress(OSError, struct.error), _Borrowed(descriptor) as connection:
            size = self._OFFSET + self._COUNTS.size
            counted = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
            acknowledged, received = self._COUNTS.unpack_from(counted, self._OFFSET)
            return Progress(received, acknowledged)
        return None

    def shut_down(self, descriptor: int) -> None:
        with suppress(OSError), _Borrowed(descriptor) as connection:
            connection.shutdown(socket.SHUT_RDWR)


class _Borrowed:
    """A socket object over a descriptor that stays ZeroMQ's."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    def __enter__(self) -> socket.socket:
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.detach()

"""A ZeroMQ socket on the running event loop: what is common to all of them, and the one context they live in.

A socket is a plain one whose file descriptor the loop watches; zmq.asyncio with its futures would cost 60 to
100 us a message.  The descriptor speaks up only when ZeroMQ has new commands
for this thread, and any call of a socket may consume them: so whoever has called one looks at its events
afterwards, and reads whatever is there.
"""

import asyncio
import atexit
import functools
from abc import ABC, abstractmethod
from typing import Final

import zmq
import zmq.utils.garbage  # for its place among the exit handlers, see process_context

from edlz.core_ext._tensors import size_in_bytes
from edlz.services.transport.codec import Buffer
from edlz.services.transport.wire import open_wire, release_departed

__all__ = ["BYTES_PER_WAKE", "MESSAGES_PER_WAKE", "LoopSocket", "process_context"]

# Then the loop's other business has its turn.  What comes of large messages takes long: they are added up, say.
MESSAGES_PER_WAKE: Final = 32
BYTES_PER_WAKE: Final = 8 << 20
SAFETY_HWM: Final = 4096  # messages a peer; credits keep it far from that
# A socket that is closed without any linger, in the middle of a message, while its connection breaks, makes
# libzmq 4.3.5 abort the process (session_base.cpp, clean_pipes: the rest of the message is out of reach).
LEAST_LINGER_MS: Final = 100
RELEASE_EVERY_S: Final = 0.05


@functools.cache
def process_context() -> "zmq.Context[zmq.Socket[bytes]]":
    """Return this process' one ZeroMQ context (one thread that does the sending and receiving).

    At exit it waits until what closed sockets still have to send has left, no longer than their linger.
    Exit handlers run last in, first out, hence the import above: pyzmq's own, which forgets the memory
    that is shared with ZeroMQ, must come after this one.
    """
    context = zmq.Context()
    atexit.register(_close_context, context)
    return context


# Kept alive until closed: a socket that is lost without having been closed would block the exit for ever.
_open_sockets: set["zmq.Socket[bytes]"] = set()


def _close_context(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    for left in _open_sockets:
        left.close(LEAST_LINGER_MS)
    context.term()


class LoopSocket(ABC):
    """A ZeroMQ socket whose messages are handed over on the event loop.

    Parameters
    ----------
    kind : int
        Of socket, as ZeroMQ numbers them.
    linger_s : float
        How long what was sent may still go out after it is closed.
    frame_bytes, frames : int
        Most of a frame, and most frames of a message, that are received.
    """

    def __init__(self, kind: int, linger_s: float, *, frame_bytes: int, frames: int) -> None:
        self._socket = process_context().socket(kind)
        _open_sockets.add(self._socket)
        self._socket.set_hwm(SAFETY_HWM)
        self._socket.setsockopt(zmq.LINGER, max(round(linger_s * 1000), LEAST_LINGER_MS))
        self._socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes)
        # A message of more frames is malformed, whatever they hold: one too many tells, besides the peer's name.
        self._wire = open_wire(self._socket, frames + 2)
        self._release_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._is_drain_due = False
        self._fd: int | None = None

    def close(self) -> None:
        """Stop receiving at once; what was sent goes out within the linger."""
        if not self._is_closed:
            self._is_closed = True
            if self._fd is not None:
                self._loop.remove_reader(self._fd)
            if self._release_timer is not None:
                self._release_timer.cancel()
            self._wire.close()
            self._socket.close()
            _open_sockets.discard(self._socket)

    def _watch(self) -> None:
        self._fd = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self._schedule_drain()

    def _schedule_drain(self) -> None:
        if not self._is_drain_due:
            self._is_drain_due = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Hand over what has come, up to a cap."""
        self._is_drain_due = True  # spares the look at the events after each answer that is sent from here
        taken_bytes = 0
        for _ in range(MESSAGES_PER_WAKE):
            if self._is_closed:
                return
            frames = self._wire.receive()
            if frames is None:
                self._is_drain_due = False
                return
            taken_bytes += size_in_bytes(frames)
            self._take(frames)
            if taken_bytes >= BYTES_PER_WAKE:
                break
        self._loop.call_soon(self._drain)

    @abstractmethod
    def _take(self, frames: list[Buffer]) -> None:
        """Hand over a message."""

    def _watch_departures(self) -> None:
        """See to it that shared frames are let go of soon after they have left, even if nothing else happens."""
        if self._release_timer is None:
            self._release_timer = self._loop.call_later(RELEASE_EVERY_S, self._release)

    def _release(self) -> None:
        self._release_timer = None
        if release_departed():
            self._watch_departures()

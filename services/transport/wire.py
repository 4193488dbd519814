"""How whole messages get into a ZeroMQ socket and out of it: compiled, or by pyzmq's means.

The compiled way (core_ext/_wire.pyx) calls libzmq itself and costs a third of pyzmq's; it needs the addresses of
libzmq's functions, which are found in the library that pyzmq has loaded.  Where they are not found (another
build of pyzmq, PyPy) pyzmq does the same, slower.  Which sockets there are is `services/transport/sockets.py`'s affair.
"""

import ctypes
import errno
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import zmq

from edlz.core_ext import _wire
from edlz.services.transport.codec import Buffer

__all__ = [
    "LARGE_BYTES",
    "Departure",
    "PyzmqWire",
    "Wire",
    "addresses",
    "is_compiled_usable",
    "open_wire",
    "release_departed",
]

LARGE_BYTES: Final = 64 << 10  # from here on sharing a frame with ZeroMQ is cheaper than copying it
OLDEST: Final = (4, 1)  # libzmq whose messages have the size that the compiled way knows
# As plain numbers: each operation on zmq's own enumerations costs 0.4 us.
NOBLOCK, SNDMORE, EVENTS, POLLIN = int(zmq.NOBLOCK), int(zmq.SNDMORE), int(zmq.EVENTS), int(zmq.POLLIN)

Socket = zmq.Socket[bytes]


class Departure(Protocol):
    """Whether the frames of a sent message have left this process' memory."""

    @property
    def done(self) -> bool: ...


class Wire(Protocol):
    """Messages of one socket; nothing waits."""

    def events(self) -> int:
        """Return which of POLLIN and POLLOUT hold, after ZeroMQ's commands for this thread were read."""
        ...

    def receive(self) -> list[Buffer] | None:
        """Return the frames of the next message; None if there is none, and then commands were read.

        Small frames are bytes, large ones read-only views.  Of too many frames some are left out.
        """
        ...

    def send(self, frames: Sequence[Buffer], peer: bytes | None = None) -> Departure | None:
        """Send a message whole, to a peer if the socket has several; None if it was not taken.

        Frames of LARGE_BYTES and more are shared with ZeroMQ until the departure is done.
        """
        ...

    def close(self) -> None:
        """Forget the socket, which somebody else closes."""
        ...


def open_wire(socket: Socket, most_frames: int) -> Wire:
    """Return the better wire that there is for a socket; the rest of longer messages is left out."""
    if is_compiled_usable():
        return _wire.MessageSocket(socket.underlying, large_bytes=LARGE_BYTES, most_frames=most_frames)
    return PyzmqWire(socket, most_frames)


release_departed: Callable[[], int] = _wire.collect
"""Let go of frames that have left, return how many have not; receiving and sending do it too.

(pyzmq does it by itself.)
"""


@functools.cache
def is_compiled_usable() -> bool:
    """Whether the compiled way has all that it needs of libzmq."""
    if zmq.zmq_version_info()[:2] < OLDEST:
        return False
    try:
        _wire.load(addresses())
    except (OSError, AttributeError):
        return False
    return True


def addresses() -> dict[str, int]:
    """Return where libzmq's functions are, by way of the module that pyzmq calls them from.

    Raises
    ------
    OSError, AttributeError
        If they are not found.
    """
    backend = sys.modules[zmq.backend.Socket.__module__]
    library = ctypes.CDLL(str(backend.__file__))  # loaded already; what it is linked with is searched too
    found: dict[str, int] = {}
    for name in _wire.SYMBOLS:
        found[name] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    return found


class PyzmqWire:
    """What `core_ext/_wire.pyx` does, by pyzmq's means.

    Parameters
    ----------
    socket : Socket
        Made, and to be closed, by the caller.
    most_frames : int
        Of a message; what is beyond them is received and left out.
    """

    def __init__(self, socket: Socket, most_frames: int) -> None:
        self._most_frames = most_frames
        self._get: Callable[[int], Any] = socket.get
        self._recv = socket.recv
        # The compiled method behind pyzmq's own, which is for options of other kinds of sockets.
        self._send: Callable[..., Any] = super(zmq.Socket, socket).send

    def close(self) -> None:
        """The socket itself knows that it is closed."""

    def events(self) -> int:
        return int(self._get(EVENTS))

    def receive(self) -> list[Buffer] | None:
        # Most often there is nothing: then asking is cheaper than catching an exception.
        if not self._get(EVENTS) & POLLIN:
            return None
        frames: list[Buffer] = []
        is_last = False
        while not is_last:
            frame = self._recv(NOBLOCK, False)
            is_last = not frame.more
            if len(frames) < self._most_frames:
                frames.append(frame.bytes if len(frame.buffer) < LARGE_BYTES else frame.buffer.toreadonly())
        return frames

    def send(self, frames: Sequence[Buffer], peer: bytes | None = None) -> Departure | None:
        whole = frames if peer is None else [peer, *frames]
        last = len(whole) - 1
        departure: Departure = _LEFT
        is_refused = False
        for number, frame in enumerate(whole):
            flags = NOBLOCK | (SNDMORE if number < last else 0)
            try:
                if len(frame) < LARGE_BYTES:
                    self._send(frame, flags)
                else:
                    departure = self._send(frame, flags, False, True)
            except zmq.ZMQError as error:
                if error.errno not in (errno.EAGAIN, errno.EHOSTUNREACH) or (
                    number and error.errno != errno.EAGAIN
                ):
                    raise
                if not number:
                    return None
                # The connection broke between two frames; see _wire.pyx.
                is_refused = True
        return None if is_refused else departure


class _Left:
    """The departure of a message that was copied."""

    done = True


_LEFT = _Left()

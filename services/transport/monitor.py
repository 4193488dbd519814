"""What happens to the connections of a socket, told on the event loop (zmq_socket_monitor)."""

import itertools
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import zmq

from edlz.services.transport.codec import Buffer
from edlz.services.transport.loop_socket import LoopSocket

__all__ = ["Monitor"]

FRAME_BYTES, EVENT_FRAMES = 1024, 2
UNREAD: Final = 100
MOST_UNREAD: Final = 100_000  # far more than have room

_EVENT = struct.Struct("=HI")  # number and value; a second frame has the endpoint

_numbers = itertools.count(1)


class Monitor(LoopSocket):
    """Watches a socket of this thread; close it before that one.

    ZeroMQ's own thread waits for a monitor that does not read: events are small, handled at once, and few.

    Parameters
    ----------
    watched : zmq.Socket
    events : int
        Which of zmq.EVENT_*.
    on_event : callable (event: int, value: int)
    """

    def __init__(
        self, watched: "zmq.Socket[bytes]", events: int, on_event: Callable[[int, int], None]
    ) -> None:
        super().__init__(zmq.PAIR, linger_s=0, frame_bytes=FRAME_BYTES, frames=EVENT_FRAMES)
        self._watched, self._on_event = watched, on_event
        self._socket.set_hwm(UNREAD)  # on the other side ZeroMQ itself keeps up to 1,000
        address = f"inproc://edlz-monitor-{next(_numbers)}"
        try:
            watched.monitor(address, events)
            self._socket.connect(address)
        except BaseException:
            super().close()
            raise
        self._watch()

    def catch_up(self) -> None:
        """Tell of all that has happened so far."""
        for _ in range(MOST_UNREAD):
            if self._is_closed or (frames := self._wire.receive()) is None:
                return
            self._take(frames)

    def close(self) -> None:
        if not self._is_closed:
            # ZeroMQ's thread, were it waiting for room here, would keep the next call waiting.
            for _ in range(MOST_UNREAD):
                if self._wire.receive() is None:
                    break
            with suppress(zmq.ZMQError):
                self._watched.monitor(None, 0)
            super().close()

    def _take(self, frames: list[Buffer]) -> None:
        event, value = _EVENT.unpack(bytes(frames[0])[: _EVENT.size])
        self._on_event(event, value)

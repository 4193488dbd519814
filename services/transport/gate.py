"""What a server is told of its connections, and what becomes of it: lines in the log, and an end to too many strangers."""

import asyncio
import logging
from typing import Final, Protocol

import zmq

from edlz.services.process.descriptors import SPARE, descriptor_limit, is_short_of_descriptors
from edlz.services.transport.handshakes import ACCEPTED, DISCONNECTED, RefusedPeers
from edlz.services.transport.monitor import Monitor
from edlz.services.transport.strangers import Bounds, Strangers

__all__ = ["Gate", "Listener"]

LOOK_EVERY_S: Final = 0.1  # while there are strangers
LOG_EVERY_S: Final = 60.0
# Connections that ZeroMQ can accept before it waits for its monitor to be read.  A process that may have a few
# thousand descriptors is never without one because of them; with less it is a matter of speed.
RUN_AHEAD: Final = 1200

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """What takes connections, and can stop to."""

    def shut(self) -> None: ...

    def open(self) -> bool:
        """Take connections again; False if that is not possible now."""
        ...


class Gate:
    """Watches the connections of a server's socket; to be closed before it.

    Parameters
    ----------
    server : zmq.Socket
    has_keys : bool
        Whether it encrypts.
    listener : Listener, optional
        What to shut while few descriptors are left.
    """

    def __init__(
        self, server: "zmq.Socket[bytes]", *, has_keys: bool, listener: Listener | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = descriptor_limit()
        self._margin = max(self._limit // 4, min(RUN_AHEAD, self._limit // 2))
        self._listener, self._is_shut = listener, False
        self._refused = RefusedPeers(self._loop.time) if has_keys else None
        self._strangers = Strangers(has_keys=has_keys, bounds=Bounds.within(self._limit))
        self._timer: asyncio.TimerHandle | None = None
        self._logged_s, self._told = float("-inf"), 0
        events = RefusedPeers.EVENTS if has_keys else ACCEPTED | DISCONNECTED
        self._monitor = Monitor(server, events, self._on_event)

    def catch_up(self) -> None:
        """Take note of all that has happened so far."""
        self._monitor.catch_up()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._monitor.close()

    def _on_event(self, event: int, value: int) -> None:
        if self._refused is not None:
            self._refused.on_event(event, value)
        if event == DISCONNECTED:
            self._strangers.go(value)
        elif event == ACCEPTED:
            self._strangers.come(value, self._loop.time())
            # The lowest free number is given: a high one says that few are left.
            is_short = value >= self._limit - self._margin
            if is_short and self._listener is not None and not self._is_shut:
                self._is_shut = True
                self._listener.shut()
                logger.warning(
                    "no more connections are taken for now: of %d descriptors few are left", self._limit
                )
            if is_short or self._strangers.are_too_many:
                self._look(is_urgent=is_short)
            self._look_later()

    def _look_later(self) -> None:
        if self._timer is None and (self._is_shut or len(self._strangers)):
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._look()
        if self._is_shut and self._listener is not None:
            self._monitor.catch_up()  # ZeroMQ's thread, waiting for that, would keep this one waiting
            if not is_short_of_descriptors(self._margin + SPARE):
                self._is_shut = not self._listener.open()
        self._look_later()

    def _look(self, *, is_urgent: bool = False) -> None:
        now = self._loop.time()
        self._strangers.look(now, is_urgent=is_urgent)
        count = self._strangers.cut_off - self._told
        if count and now - self._logged_s >= LOG_EVERY_S:
            self._logged_s, self._told = now, self._strangers.cut_off
            logger.warning(
                "%d connections cut off that had not finished a handshake; %d others wait",
                count,
                len(self._strangers),
            )

"""What a server is told of its connections, and what becomes of it: lines in the log, and an end to too many strangers."""

import asyncio
import logging
from typing import Final

import zmq

from edlz.services.descriptors import SPARE, descriptor_limit
from edlz.services.handshakes import ACCEPTED, DISCONNECTED, RefusedPeers
from edlz.services.monitor import Monitor
from edlz.services.strangers import Bounds, Strangers

__all__ = ["Gate"]

LOOK_EVERY_S: Final = 0.1  # while there are strangers
LOG_EVERY_S: Final = 60.0

logger = logging.getLogger(__name__)


class Gate:
    """Watches the connections of a server's socket; to be closed before it.

    Parameters
    ----------
    server : zmq.Socket
    has_keys : bool
        Whether it encrypts.
    """

    def __init__(self, server: "zmq.Socket[bytes]", *, has_keys: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = descriptor_limit()
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
            is_short = value >= self._limit - 4 * SPARE
            if is_short or self._strangers.are_too_many:
                self._look(is_urgent=is_short)
            elif self._timer is None and len(self._strangers):
                self._timer = self._loop.call_later(LOOK_EVERY_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._look()
        if len(self._strangers):
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look_again)

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

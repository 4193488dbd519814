"""What one client has asked one server and has no answer to yet: which of it may leave now.

Theory of operation.  A request takes a credit when it leaves and gives it back when it is answered; while there
is none, further ones wait, so that a server that falls behind is not buried.  That holds for requests that a
server answers when it gets to them.  One that it may *hold* until other requests have come takes no credit
and waits for none: it would use up what those others, perhaps of the same client, need to be sent.  How many of
those there can be is for whoever sends them to bound (a worker: two for each task in hand and partition).

This is a core: no sockets, no clock.
"""

from typing import Generic, TypeVar

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import HELD

__all__ = ["Outbox"]

R = TypeVar("R")


class Outbox(Generic[R]):
    """Requests by their ids, in the order in which they were made.

    Parameters
    ----------
    credits : int
        Requests that may be under way at once, beside those that the server may hold.

    Attributes
    ----------
    under_way : dict of int to R
        Those that have left; of these at most `credits` hold a credit.
    """

    def __init__(self, credits: int) -> None:  # noqa: A002
        self._credits = credits
        self.under_way: dict[int, R] = {}
        self._holding: set[int] = set()  # those under way that hold a credit
        self._waiting: dict[int, R] = {}  # for a credit
        self._ready: dict[int, R] = {}  # need none

    # -- questions

    @property
    def waiting(self) -> int:
        """How many wait for a credit, or to leave with one."""
        return len(self._waiting)

    def pending(self) -> list[tuple[int, R]]:
        """Return all that are not answered."""
        return [*self.under_way.items(), *self._ready.items(), *self._waiting.items()]

    def get(self, request_id: int) -> R | None:
        """Return a request that is not answered."""
        for table in (self.under_way, self._ready, self._waiting):
            if request_id in table:
                return table[request_id]
        return None

    def next(self) -> tuple[int, R] | None:
        """Return the first one that may leave now."""
        if self._ready:
            return next(iter(self._ready.items()))
        if self._waiting and len(self._holding) < self._credits:
            return next(iter(self._waiting.items()))
        return None

    # -- changes

    def add(self, request_id: int, request: R, body: Message) -> None:
        """Take in a request that `body` is asked with."""
        table = self._ready if type(body) in HELD else self._waiting
        table[request_id] = request

    def leave(self, request_id: int) -> None:
        """The one that `next` returned has been sent."""
        if request_id in self._ready:
            self.under_way[request_id] = self._ready.pop(request_id)
            return
        self.under_way[request_id] = self._waiting.pop(request_id)
        self._holding.add(request_id)

    def pop(self, request_id: int) -> R | None:
        """Take out a request that is answered, or that nobody wants answered any more."""
        self._holding.discard(request_id)
        for table in (self.under_way, self._ready, self._waiting):
            if request_id in table:
                return table.pop(request_id)
        return None

    def clear(self) -> None:
        for table in (self.under_way, self._ready, self._waiting):
            table.clear()
        self._holding.clear()

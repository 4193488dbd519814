"""Asks that the master has not answered yet, since it has nothing to say: whoever waits hears at once when it has.

Who may be kept waiting says so in its status (`can_wait`): a worker with nothing in hand, one that waits for the orders of
its group, a partition that stands behind the last task before a barrier.  An answer that would only repeat what is known is held back until there is another
one, or until `longest_s` are over, so that silence still means what it does elsewhere.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from edlz.services.master.core.vocabulary.inputs import Input, Request
from edlz.services.protocol.messages import WorkerOrders, WorkerStatus

__all__ = ["HeldAsk", "HeldAsks", "may_be_held", "says_anything"]

Status = TypeVar("Status")


@dataclass(frozen=True, slots=True)
class HeldAsk(Generic[Status]):
    """A status, whom its answer is for, and until when that can wait."""

    to: Hashable
    status: Status
    until_s: float


class HeldAsks(Generic[Status]):
    """The newest ask of each process that waits, oldest first.

    Parameters
    ----------
    longest_s : float
        How long an answer may be held: less than the time after which a request is sent again.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._asks: dict[Hashable, HeldAsk[Status]] = {}

    def __iter__(self) -> Iterator[HeldAsk[Status]]:
        """Yield all of them; meanwhile they may be dropped."""
        return iter(list(self._asks.values()))

    def hold(self, who: Hashable, to: Hashable, status: Status, now: float) -> None:
        """Answer this later, and nothing that the same process has asked before."""
        self._asks.pop(who, None)
        self._asks[who] = HeldAsk(to, status, now + self._longest_s)

    def repeat(self, who: Hashable, to: Hashable) -> bool:
        """The newest ask of a process has come once more: whether it is held, and so will be answered there."""
        ask = self._asks.get(who)
        if ask is not None:
            self._asks[who] = HeldAsk(to, ask.status, ask.until_s)
        return ask is not None

    def drop(self, who: Hashable) -> None:
        """A process is answered, or is not there any more."""
        self._asks.pop(who, None)


def may_be_held(event: Input) -> bool:
    """Whether an event is but the ask of a worker that has nothing in hand; what one says of its replica is more."""
    body = event.body if isinstance(event, Request) else None
    return isinstance(body, WorkerStatus) and body.can_wait and body.member is None


def says_anything(orders: WorkerOrders) -> bool:
    """Whether orders say anything to a worker that has nothing in hand."""
    noted = (*orders.noted, *orders.noted_evaluations, *orders.noted_results, *orders.noted_failures)
    given = (orders.lease, orders.evaluation, orders.conclude, orders.export, orders.released)
    is_ending = orders.stop or orders.finished
    return bool(is_ending or noted or any(given) or orders.partitions or orders.noted_export)

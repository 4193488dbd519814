"""The tasks that the master ends before their records do, as a partition knows them (PROTOCOL: section 8).

Theory of operation.  A task whose records make the user's code raise ends at the minibatch that raises.
All partitions must agree on the place, whatever workers do that do not know of it.  So the master first has
the partitions *close* the task: none takes pushes of it, each reports where it stands.  When all have, the
master journals the end, which nobody has gone beyond; from then on a partition takes minibatches before the
end, and there only the empty one that ends the task.  A new life takes no pushes before its first orders:
they name all ends.
"""

from collections.abc import Callable

from edlz.services.protocol.ledger import Ledger
from edlz.services.protocol.messages import ClosedTask, Ends, PartitionOrders, Push

__all__ = ["TaskEnds"]


class TaskEnds:
    """Where tasks end, in one life of a partition.

    Attributes
    ----------
    are_known : bool
        Whether the life's first orders have come.
    are_none : bool
        Whether every push may be taken.
    closing : dict
        Tasks that are closed, each with the number of the wish.
    """

    def __init__(self, *, are_known: bool) -> None:
        self.are_known = self.are_none = are_known
        self.closing: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    @property
    def known(self) -> Ends:
        """Where tasks end, as far as this life has heard."""
        return tuple(sorted(self._ends.items()))

    def hear(self, ends: Ends) -> None:
        """Take in ends before the life's first orders."""
        self._ends.update(ends)

    def obey(self, orders: PartitionOrders) -> bool:
        """Take in what orders say; whether a task is newly closed."""
        closing = dict(orders.closing)
        is_news = any(number not in self.closing.values() for number in closing.values())
        self._ends.update(orders.ends)  # an end is never taken back
        self.closing = closing
        self.are_known = True
        self.are_none = not self._ends and not self.closing
        return is_news

    def closed(self, standing: Callable[[int], tuple[int, bool]]) -> tuple[ClosedTask, ...]:
        """Where this partition stands with the tasks that it takes no pushes of: mark, and whether finished."""
        found = ((task, number, standing(task)) for task, number in self.closing.items())
        return tuple(
            ClosedTask(task=task, number=number, mark=mark, finished=is_finished)
            for task, number, (mark, is_finished) in found
        )

    def bars(self, push: Push, ledger: Ledger) -> bool:
        """Whether a push would go beyond where its task ends, or may end.

        What the ledger has already is let through: it changes nothing.
        """
        if not self.are_known:
            return True
        task = push.task
        mark = ledger.mark(task)
        if push.index < mark or (not mark and task in ledger.finished):
            return False
        if task in self.closing:
            return True
        end = self._ends.get(task)
        if end is None:
            return False
        if push.index < end:  # records may end before
            return push.is_last and push.gradient is not None and push.index + 1 == end
        return push.index > end or push.gradient is not None or not push.is_last

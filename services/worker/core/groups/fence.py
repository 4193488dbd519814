"""How far a member may go, and how: what the master has told of the barriers that the job has passed, and of deaths.

Fence, end and learning rates come in one message, so whoever may go behind a barrier knows what was decided there.  All of
them are places in the plan: a group that has gone back comes by the same decisions at the same tasks again.
"""

from collections.abc import Collection, Iterable

from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import Decided, GroupOrders
from edlz.services.worker.core.groups.inputs import SlotBegins
from edlz.services.worker.core.groups.instructions import Instruction, Proceed, Tell

__all__ = ["Caution", "Fence"]


class Fence:
    """What one member knows of them.

    Parameters
    ----------
    task_count : int
        Of the plan.
    """

    def __init__(self, task_count: int) -> None:
        self._decided = Decided(fence=0, task_count=task_count)  # nothing is heard yet: nobody takes a step
        self._closing: frozenset[int] = frozenset()

    def hear(self, decided: Decided | None, closing: Collection[int] = ()) -> None:
        """Take in what a master says; one that does not know it yet has nothing against what was said before."""
        self._decided, self._closing = decided or self._decided, frozenset(closing)

    @property
    def task_count(self) -> int:
        """How many tasks the job has: fewer than its plan, if it has been ended."""
        return self._decided.task_count

    def bars(self, task: int) -> bool:
        """Whether a barrier that is not passed stands before this task."""
        return task >= self._decided.fence

    def closes(self, tasks: Iterable[int], finished: TaskSet) -> bool:
        """Whether one of the tasks of a round is about to be ended: where, is where the members stand before its next step."""
        return any(task in self._closing and task not in finished for task in tasks)

    def learning_rate(self, task: int) -> float | None:
        """Return what callbacks have set for a task; None if the model's own holds."""
        return next((rate for first, rate in reversed(self._decided.rates) if first <= task), None)


class Caution:
    """What one member does where others have ended: it names each slot that comes next, and waits until that is heard.

    So the master knows what is in its hand.  What it has named it takes back, and that is heard, too, before it goes on without a word.

    Attributes
    ----------
    minibatch : (int, int) or None
        Task and index of what comes next, or is computed, if it is to be told.
    """

    def __init__(self) -> None:
        self._versions = range(0)
        self._is_due = False  # in this block
        self._is_named = False  # the master may think that something named is in work
        self._waits: SlotBegins | None = None
        self.minibatch: tuple[int, int] | None = None

    def begin(self, version: int) -> bool:
        """A block begins, of the step behind a version; return whether its slots wait."""
        self.end()
        self._is_due = version in self._versions
        return self._is_due or self._is_named

    def end(self) -> None:
        """Nothing is computed any more."""
        self._waits = self.minibatch = None

    def finish(self) -> list[Tell]:
        """The block is computed: take back what was named, so that it may be heard before the next one begins."""
        self.end()
        return [Tell()] if self._is_named else []

    def on_slot(self, slot: SlotBegins) -> list[Instruction]:
        """A slot comes next."""
        if self._is_due:
            self.minibatch, self._is_named = (slot.task, slot.index), True
        elif not self._is_named:
            return [Proceed(slot.attempt, slot.task)]
        self._waits = slot
        return [Tell()]

    def hear(self, orders: GroupOrders) -> list[Instruction]:
        """Take in what the master says; a slot whose name it has heard, or that it knows of none, is computed."""
        self._versions, waits = range(*orders.caution), self._waits
        if waits is None:
            self._is_named &= orders.computing is not None
            return []
        if orders.computing != self.minibatch:
            return []
        self._waits, self._is_named = None, self._is_due
        return [Proceed(waits.attempt, waits.task)]

"""How far a member may go, and how: what the master has told of the barriers that the job has passed.

Fence, end and learning rates come in one message, so whoever may go behind a barrier knows what was decided there.  All of
them are places in the plan: a group that has gone back comes by the same decisions at the same tasks again.
"""

from edlz.services.protocol.messages import Decided

__all__ = ["Fence"]


class Fence:
    """What one member knows of them.

    Parameters
    ----------
    task_count : int
        Of the plan.
    """

    def __init__(self, task_count: int) -> None:
        self._decided = Decided(fence=0, task_count=task_count)  # nothing is heard yet: nobody takes a step

    def hear(self, decided: Decided | None) -> None:
        """Take in what a master says; one that does not know it yet has nothing against what was said before."""
        self._decided = decided or self._decided

    @property
    def task_count(self) -> int:
        """How many tasks the job has: fewer than its plan, if it has been ended."""
        return self._decided.task_count

    def bars(self, task: int) -> bool:
        """Whether a barrier that is not passed stands before this task."""
        return task >= self._decided.fence

    def learning_rate(self, task: int) -> float | None:
        """Return what callbacks have set for a task; None if the model's own holds."""
        return next((rate for first, rate in reversed(self._decided.rates) if first <= task), None)

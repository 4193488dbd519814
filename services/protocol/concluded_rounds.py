"""What is told of the user's callbacks: what they need, what they are shown, what they have decided.

Callbacks are called at *barriers*: each stands in the plan, behind the last task of some round of tasks.  They are
called once for each, in the plan's order, and what they decide follows from what they were shown so far.  Only the
master keeps that (in its journal); any worker can go on from it.
"""

from typing import Self

import msgspec

from edlz.services.protocol.message_types import Record

__all__ = [
    "NOT_YET",
    "NO_VERSION",
    "CallbackBeginning",
    "CallbackNeeds",
    "ConcludedRound",
    "Decision",
    "LossSum",
    "ShownRound",
]

NO_VERSION = -1
NOT_YET = -1


class LossSum(Record, frozen=True, kw_only=True):
    """Losses of the minibatches that are in a partition's state, added up as they were applied."""

    total: float = 0.0  # of those that are finite
    count: int = 0  # all of them
    nonfinite: int = 0

    def plus(self, loss: float, *, is_finite: bool) -> "LossSum":
        """Return the sum with one more."""
        if not is_finite:
            return LossSum(total=self.total, count=self.count + 1, nonfinite=self.nonfinite + 1)
        return LossSum(total=self.total + loss, count=self.count + 1, nonfinite=self.nonfinite)

    def mean_since(self, before: "LossSum") -> float | None:
        """Return the mean of what was added since; NaN if any of it was not finite, None of nothing."""
        count = self.count - before.count
        if count <= 0:
            return None
        return float("nan") if self.nonfinite > before.nonfinite else (self.total - before.total) / count


class CallbackNeeds(Record, frozen=True, kw_only=True):
    """What a model's callbacks need of the job; every worker finds the same.

    `decides`: they may stop the job, change its learning rate or keep a version, so synchronous training waits for
    them.  `runs`: some are called at each barrier.  `max_steps`: minibatches after which the job ends; 0: none.
    """

    runs: bool = False
    decides: bool = False
    max_steps: int = 0


class CallbackBeginning(Record, frozen=True, kw_only=True):
    """How far the job was when its callbacks were heard of: what was trained before is not theirs to see.

    `done`: so many tasks; NOT_YET: nobody knows.  `losses`: those of their minibatches.
    """

    done: int = 0
    losses: LossSum = LossSum()


class Decision(Record, frozen=True, kw_only=True):
    """What the callbacks made of a round.

    `logs` is what they were shown.  `learning_rate` holds from the round's version on; None: no other one.  `kept`:
    the versions whose weights they still refer to.  `result`: at the job's end, the one whose weights they have
    put back.
    """

    logs: dict[str, float]
    stop: bool = False
    learning_rate: float | None = None
    kept: tuple[int, ...] = ()
    result: int = NO_VERSION


class ConcludedRound(Record, frozen=True, kw_only=True):
    """A barrier that the job has passed, or ended at.  `task`: the last one before it."""

    task: int
    version: int
    decision: Decision
    losses: LossSum = LossSum()


class ShownRound(Record, frozen=True, kw_only=True):
    """What callbacks are shown beside the metrics of a round, and what they were shown before, in order.

    `loss`: the mean over the minibatches since the barrier before.  `is_end`: no task is behind this one.
    """

    version: int
    loss: float | None = None
    is_end: bool = False
    before: tuple[ConcludedRound, ...] = ()
    first: int = 0  # the number of the first one in `before`: the worker has those in front of it

    def from_number(self, first: int) -> Self:
        """Return it for a worker that has so many of the rounds before."""
        if not 0 < first <= len(self.before):
            return self
        return msgspec.structs.replace(self, before=self.before[first:], first=first)

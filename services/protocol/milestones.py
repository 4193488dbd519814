"""Places in a job that follow from how many minibatches come before them.

Those of a job without an end are worked out as far as they are asked for, epoch by epoch or piece by piece.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from edlz.services.protocol.growing_plan import GrowingPlan
from edlz.services.protocol.plan import Plan

__all__ = ["Milestones"]


class Milestones:
    """Where callbacks are called, and where the job ends if its minibatches are limited.

    Parameters
    ----------
    plan : Plan
        May become longer; until then there is nothing behind what it has.
    every : int
        Versions from one barrier to the next, for a feed that keeps every record; 0: epochs' ends, of which one that
        becomes longer has none.
    """

    def __init__(self, plan: Plan, every: int) -> None:
        self._plan, self._every = plan, every
        self._part = self._version = 0  # the parts that have been looked at, and the version behind them
        self._places = np.zeros(0, np.int64)  # barriers in the last of them that has any

    def next_barrier(self, last: int) -> int | None:
        """Return the last task before the first barrier behind task `last`; None: there is none as yet."""
        plan = self._plan
        if not plan.is_endless:
            return _following(self._all, last)
        if not self._every:
            return None if plan.grows else plan.count_by(last + 1) - 1
        while not (len(self._places) and self._places[-1] > last):
            if isinstance(plan, GrowingPlan) and self._part >= plan.pieces:
                return None
            self._look_at_next_part()
        return _following(self._places, last)

    @cached_property
    def _all(self) -> npt.NDArray[np.int64]:
        return self._plan.barriers(self._every)

    def end_after(self, steps: int) -> tuple[int, int | None] | None:
        """Return the last task of a job of so many minibatches, and the index that it ends at if that is within it.

        None: it has not so many, or not as yet.
        """
        if not self._plan.is_endless:
            return _end_after(steps, self._plan.minibatches)
        for part, before in self._parts_from(steps):
            last, index = _end_after(steps - before, self._minibatches(part)) or (0, None)
            return self._first(part) + last, index
        return None

    def _parts_from(self, steps: int) -> Iterator[tuple[int, int]]:
        """Yield those parts that may have the step, each with the minibatches before it."""
        plan = self._plan
        if not isinstance(plan, GrowingPlan):
            epoch = (steps - 1) // plan.minibatches_per_epoch
            yield epoch, epoch * plan.minibatches_per_epoch
            return
        before = 0
        for piece in range(plan.pieces):
            behind = plan.size_of(plan.first_of_piece(piece + 1))[1]
            if steps <= behind:
                yield piece, before
            before = behind

    def _look_at_next_part(self) -> None:
        first, minibatches = self._first(self._part), self._minibatches(self._part)
        rounds = np.arange(0, len(minibatches), self._plan.slots)
        reduce = np.maximum if self._plan.is_sync else np.add
        of_rounds = reduce.reduceat(minibatches.astype(np.int64), rounds)
        versions = self._version + np.cumsum(of_rounds)
        before = np.concatenate([[self._version], versions[:-1]])
        lasts = first + np.append(rounds[1:], len(minibatches)) - 1
        places = lasts[versions // self._every > before // self._every]
        self._part, self._version = self._part + 1, int(versions[-1])
        self._places = places if len(places) else self._places

    def _first(self, part: int) -> int:
        plan = self._plan
        return plan.first_of_piece(part) if isinstance(plan, GrowingPlan) else part * plan.tasks_per_epoch

    def _minibatches(self, part: int) -> npt.NDArray[np.int32]:
        plan = self._plan
        if isinstance(plan, GrowingPlan):
            return plan.minibatches_of_piece(part)
        return plan.minibatches_of_epoch(part)


def _following(places: npt.NDArray[np.int64], last: int) -> int | None:
    place = int(np.searchsorted(places, last, side="right"))
    return int(places[place]) if place < len(places) else None


def _end_after(steps: int, minibatches: npt.NDArray[np.int32]) -> tuple[int, int | None] | None:
    sums = np.cumsum(minibatches, dtype=np.int64)
    if not len(sums) or steps > sums[-1]:
        return None
    last = int(np.searchsorted(sums, steps))
    rest = steps - (int(sums[last - 1]) if last else 0)
    return last, rest if steps < sums[last] else None

"""How often minibatches were applied: counted where that is done, and moved by nothing else.

Of a job that has an end there is a number for each of its tasks.  Of one without, those of the tasks before the first one that is not
finished are folded into their sum, so that it stays small however long the job is.  The ledger says what should be in a
state; the two agree (`recount`), or the promise of exactly once is broken.
"""

import numpy as np
import numpy.typing as npt

from edlz.services.protocol.ledger import Ledger
from edlz.services.protocol.messages import Recount
from edlz.services.protocol.plan import ENDLESS, Plan

__all__ = ["NOT_FOLDED", "AppliedCounts", "no_counts", "recount", "recount_of_folded"]

NOT_FOLDED = -1
_ROOM = 1024  # tasks for which there is room when more is needed


def no_counts(task_count: int) -> tuple[npt.NDArray[np.int32], int]:
    """Return the counts of a state before training, and what is folded into their sum."""
    if task_count == ENDLESS:
        return np.zeros(0, np.int32), 0
    return np.zeros(task_count, np.int32), NOT_FOLDED


class AppliedCounts:
    """The counts of one store.

    Parameters
    ----------
    counts : ndarray, shape (tasks,), int32
        As a state has them; copied.
    folded : int
        The sum of those before; NOT_FOLDED: there are none.
    ledger : Ledger
        Of the same state, which changes with it.
    """

    def __init__(self, counts: npt.NDArray[np.int32], folded: int, ledger: Ledger) -> None:
        self._ledger, self._is_folded = ledger, folded != NOT_FOLDED
        self._first = ledger.finished.first_missing() if self._is_folded else 0
        self._folded = folded if self._is_folded else 0
        self._of = counts.copy()
        self._view = self._of.data  # a third of the time for one number

    def __contains__(self, task: int) -> bool:
        return task >= 0 and (self._is_folded or task < len(self._of))

    @property
    def nbytes(self) -> int:
        return self._of.nbytes

    @property
    def total(self) -> int:
        return self._folded + int(self._of.sum())

    def of(self, task: int) -> int:
        """Return how many minibatches of a task were applied that is not finished."""
        place = task - self._first
        return int(self._of[place]) if 0 <= place < len(self._of) else 0

    def note(self, task: int) -> None:
        """A minibatch of a task was applied; the ledger has it already."""
        place = task - self._first
        if place >= len(self._of) and self._is_folded:
            self._make_room(task)
            place = task - self._first
        if place < 0:  # it was finished before
            self._folded += 1
        else:
            self._view[place] += 1

    def record(self) -> tuple[npt.NDArray[np.int32], int]:
        """Return a copy as a state has them: of a job without an end, a function of the ledger and the counts alone."""
        if not self._is_folded:
            return self._of.copy(), NOT_FOLDED
        first = self._ledger.finished.first_missing()
        kept = self._of[first - self._first :]
        filled = np.flatnonzero(kept)
        end = int(filled[-1]) + 1 if len(filled) else 0
        return kept[:end].copy(), self._folded + int(self._of[: first - self._first].sum())

    def recount(self, plan: Plan) -> Recount:
        """Compare with what ledger and plan ask for."""
        if not self._is_folded:
            return recount(self._of, self._ledger, plan.minibatches)
        counts = {task: self.of(task) for task in self._ledger.marks}
        return recount_of_folded(self.total, counts, self._ledger)

    def _make_room(self, task: int) -> None:
        first = max(self._first, min(self._ledger.finished.first_missing(), task))
        left_out = first - self._first
        self._folded += int(self._of[:left_out].sum())
        kept = self._of[left_out:]
        needed = task - first + 1
        self._of = np.zeros(needed + max(needed, _ROOM), np.int32)
        self._of[: len(kept)] = kept
        self._first, self._view = first, self._of.data


def recount(counts: npt.NDArray[np.int32], ledger: Ledger, planned: npt.NDArray[np.int32]) -> Recount:
    """Compare what was applied with what the ledger and the plan ask for.

    An open task should have its mark.  A finished one should have what the plan gives it, unless its feed left
    records out: then only the ledger's sum over all finished tasks is known, and a minibatch that is missing in
    one task may hide one that is doubled in another.

    Parameters
    ----------
    counts : ndarray, shape (tasks,), int32
        Minibatches applied, counted where they are applied.
    ledger : Ledger
    planned : ndarray, shape (tasks,), int32
        Minibatches of each task, for a feed that keeps every record.
    """
    expected = np.zeros(len(counts), np.int64)
    bounds = ledger.finished.bounds
    for lo, hi in zip(bounds[::2], bounds[1::2], strict=True):
        expected[lo:hi] = planned[lo:hi]
    is_open = np.zeros(len(counts), np.bool_)
    for task, mark in ledger.marks.items():
        expected[task], is_open[task] = mark, True
    surplus = counts - expected
    if int(expected.sum()) != ledger.minibatches:
        closed = int(counts.sum(where=~is_open)) - (ledger.minibatches - sum(ledger.marks.values()))
        surplus = np.append(surplus[is_open], closed)
    return Recount(
        expected=ledger.minibatches,
        applied=int(counts.sum()),
        missing=int(-surplus.sum(where=surplus < 0)),
        doubled=int(surplus.sum(where=surplus > 0)),
    )


def recount_of_folded(applied: int, counts: dict[int, int], ledger: Ledger) -> Recount:
    """Do the same for a job without an end, of whose finished tasks only the sum is known.

    Parameters
    ----------
    applied : int
        Minibatches of all tasks.
    counts : dict of int to int
        Of each open task.
    """
    surplus = [counts[task] - mark for task, mark in ledger.marks.items()]
    surplus.append(applied - ledger.minibatches - sum(surplus))
    return Recount(
        expected=ledger.minibatches,
        applied=applied,
        missing=-sum(each for each in surplus if each < 0),
        doubled=sum(each for each in surplus if each > 0),
    )

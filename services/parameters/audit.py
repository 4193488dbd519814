"""How often the apply path applied each minibatch, beside how often it should have.

The ledger says what should be in a state; `Store.counts` says what was applied, task by task, and nothing in
the ledger moves it.  The two agree, or the promise of exactly once is broken.
"""

import numpy as np
import numpy.typing as npt

from edlz.services.protocol.ledger import Ledger
from edlz.services.protocol.messages import Recount

__all__ = ["recount", "recount_of_folded"]


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

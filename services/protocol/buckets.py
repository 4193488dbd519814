"""Counts of values by size: what a distribution is told of in few numbers, and its quantiles."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

__all__ = ["DURATIONS_S", "STALENESS", "Buckets", "quantile"]

DURATIONS_S = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
STALENESS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0)


class Buckets:
    """How many values were not above each bound, and not in the bucket before; the last bucket has no bound.

    Parameters
    ----------
    bounds : sequence of float
        Ascending.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def note(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def note_all(self, values: Sequence[float]) -> None:
        """Count values that were gathered meanwhile."""
        if not values:
            return
        found = np.bincount(np.searchsorted(self.bounds, values), minlength=len(self.counts))
        self.counts = [before + more for before, more in zip(self.counts, found.tolist(), strict=True)]
        self.total += sum(values)


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return the bound below which a share of the values lies; of the last bucket its lower one.  None: there are none."""
    wanted, seen = share * sum(counts), 0
    if not wanted:
        return None
    for bound, count in zip(bounds, counts, strict=False):
        seen += count
        if seen >= wanted:
            return bound
    return bounds[-1]

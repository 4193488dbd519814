"""The one row that stands for all ids without a row, where they share one."""

import numpy as np
import numpy.typing as npt

from edlz.core_ext.initializers import Initializer
from edlz.services.export.tables.table_content import TableContent, UnknownIds

__all__ = ["RowSum", "mean_initial", "unknown_row"]

Rows = npt.NDArray[np.float32]


class RowSum:
    """Adds up rows in float64, block by block in the order of their ids, so that the mean has the same bits always."""

    def __init__(self, dim: int) -> None:
        self._total, self._count = np.zeros(dim, np.float64), 0

    def add(self, rows: Rows) -> None:
        """Add rows, shape (m, dim)."""
        self._total += rows.sum(axis=0, dtype=np.float64)
        self._count += len(rows)

    def mean(self) -> Rows:
        """Return the mean, shape (1, dim); zeros, if there was no row."""
        mean = self._total / max(1, self._count)
        return mean.astype(np.float32)[np.newaxis]


def unknown_row(content: TableContent, trained: RowSum, unknown_ids: UnknownIds) -> Rows:
    """Return the row, shape (1, dim): zeros, if initial values differ from id to id."""
    if unknown_ids == "mean":
        return trained.mean()
    if unknown_ids == "initial" and content.initializer.kind == "constant":
        return content.initial_rows(np.zeros(1, np.int64))
    return np.zeros((1, content.dim), np.float32)


def mean_initial(initializer: Initializer) -> float:
    """Return the mean of the values that rows begin with."""
    return (initializer.a + initializer.b) / 2 if initializer.kind == "uniform" else initializer.a

"""Records as readers give them: byte strings, or a block of rows with a column for each field."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Columns", "Order", "Records"]

Order = npt.NDArray[np.int64]


class Columns:
    """Rows, as an array for each column; texts are arrays of bytes objects.

    Parameters
    ----------
    values : mapping of str to ndarray
        All of one length, in the order of the source's columns.
    count : int
        That length.
    """

    def __init__(self, values: Mapping[str, npt.NDArray[Any]], count: int) -> None:
        self.values, self._count = dict(values), count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: slice) -> "Columns":
        """Return some of the rows."""
        count = len(range(*rows.indices(self._count)))
        return Columns({name: column[rows] for name, column in self.values.items()}, count)

    def take(self, order: Order) -> "Columns":
        """Return the rows at these places, in this order."""
        return Columns({name: column[order] for name, column in self.values.items()}, len(order))

    def rows(self) -> list[dict[str, Any]]:
        """Return each row by itself."""
        lists = [column.tolist() if column.ndim == 1 else list(column) for column in self.values.values()]
        names = tuple(self.values)
        return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


Records = list[bytes] | Columns

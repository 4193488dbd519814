"""What is in an embedding table: its trained rows in order, and what all other ids have."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edlz.core_ext.table import EmbeddingTable, Initializer
from edlz.services.configuration.export_flags import UNKNOWN_IDS, UnknownIds
from edlz.services.errors import DataError
from edlz.services.protocol.seeds import table_seed
from edlz.services.storage.sorted_rows import SortedRows
from edlz.services.storage.whole_cut import WholeCut

__all__ = ["UNKNOWN_IDS", "RowSum", "TableContent", "UnknownIds", "mean_initial", "unknown_row"]

Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]


class TableContent:
    """One table of a cut.

    Parameters
    ----------
    cut : WholeCut
        Open as long as rows are read.
    place : int
        The table's, in the model's order.
    seed : int
        The job's.
    on_progress : callable, optional
        Called again and again while rows are read, with how many were given out since.
    """

    def __init__(
        self, cut: WholeCut, place: int, seed: int, on_progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self._cut, self.place, self._on_progress = cut, place, on_progress
        spec = cut.head.tables[place].spec
        self.path, self.dim = spec.path, spec.dim
        self.initializer = Initializer(spec.initializer.kind, spec.initializer.a, spec.initializer.b)
        self.seed = table_seed(seed, place)
        self.row_count = cut.row_count(place)
        self._empty = EmbeddingTable(self.dim, [], self.initializer, self.seed)

    def initial_rows(self, ids: Ids) -> Rows:
        """Return the initial values of rows, shape (n, dim)."""
        rows = np.empty(len(ids) * self.dim, np.float32)
        self._empty.gather(np.ascontiguousarray(ids), rows)
        return rows.reshape(-1, self.dim)

    def rows(self, scratch: Path) -> Iterator[tuple[Ids, Rows]]:
        """Return the trained rows in the order of their ids, block by block.

        Parameters
        ----------
        scratch : Path
            A folder with room for them.

        Yields
        ------
        ids : ndarray, shape (m,)
        values : ndarray, shape (m, dim)

        Raises
        ------
        DataError
            If the files are damaged; nothing that was yielded before must be used then.
        OSError
            If there is no room for them.
        """
        ordered = SortedRows(self._cut.sources(self.place), self.dim, scratch, on_progress=self._on_progress)
        try:
            yield from ordered.blocks()
        finally:
            ordered.close()

    def whole(self, size: int, scratch: Path) -> Iterator[tuple[int, Rows]]:
        """Return all rows of a table of known size: those never trained have their initial values.

        Parameters
        ----------
        size : int
            Ids are in [0, size).

        Yields
        ------
        first : int
            The id of the block's first row.
        values : ndarray, shape (m, dim)

        Raises
        ------
        DataError
            As `rows`; also if there is a row of another id.
        """
        first = 0
        for ids, values in self.rows(scratch):
            if ids[0] < 0 or ids[-1] >= size:
                raise DataError(f"table {self.path}: rows {ids[0]} to {ids[-1]} are not within [0, {size})")
            end = int(ids[-1]) + 1
            for block_first, block in self._initial(first, end):
                inside = (ids >= block_first) & (ids < block_first + len(block))
                block[ids[inside] - block_first] = values[inside]
                yield block_first, block
            first = end
        yield from self._initial(first, size)

    def _initial(self, first: int, end: int) -> Iterator[tuple[int, Rows]]:
        step = max(1, (16 << 20) // (4 * self.dim))
        for start in range(first, end, step):
            self._on_progress(0)
            yield start, self.initial_rows(np.arange(start, min(start + step, end), dtype=np.int64))


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

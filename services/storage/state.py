"""A partition's whole state at one instant: what a snapshot or a checkpoint stores, and a store begins from."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.layout import Layout
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import Identity, OptimizerSpec, SnapshotName, TableSpec

__all__ = ["MemoryRows", "State", "TableRows"]

Vector = npt.NDArray[np.float32]
Counters = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int64]


class TableRows(Protocol):
    """The rows of one embedding table at one instant, in an order of their own.

    A row is `width` numbers: its values, then its optimizer slots one after another.
    """

    @property
    def row_count(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def ids(self) -> Ids:
        """The rows' ids, shape (row_count,), none twice."""
        ...

    def read(self, first: int, count: int, out: Vector) -> None:
        """Copy rows [first, first + count) into `out`, shape (count * width,)."""
        ...

    def close(self) -> None:
        """Let go of what the rows are read from; they are of no use afterwards."""
        ...


class MemoryRows:
    """Rows that lie in memory.

    Parameters
    ----------
    ids : ndarray, shape (n,), int64
    rows : ndarray, shape (n, width), float32
    """

    def __init__(self, ids: Ids, rows: Vector) -> None:
        self._ids, self._rows = ids, rows

    @classmethod
    def of(cls, source: TableRows) -> "MemoryRows":
        """Copy rows from elsewhere."""
        rows = np.empty((source.row_count, source.width), np.float32)
        source.read(0, source.row_count, rows.reshape(-1))
        return cls(source.ids.copy(), rows)

    @property
    def row_count(self) -> int:
        return len(self._ids)

    @property
    def width(self) -> int:
        return int(self._rows.shape[1])

    @property
    def ids(self) -> Ids:
        return self._ids

    @property
    def rows(self) -> Vector:
        """Shape (n, width)."""
        return self._rows

    def read(self, first: int, count: int, out: Vector) -> None:
        out[:] = self._rows[first : first + count].reshape(-1)

    def close(self) -> None:
        """Memory goes with the object."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's whole state at one instant.

    `counts` is how often the apply path applied a minibatch of each task: the check on the ledger's
    marks, raised where the gradient is applied and nowhere else.  Of a job without an end it begins with the first task
    that is not finished, and `folded` is the sum of those before.  `base_digest` is empty in a job that
    began from a checkpoint.
    """

    plan_hash: str
    base_digest: str
    partition: int
    partitions: int
    layout: Layout
    optimizer: OptimizerSpec
    era: Identity
    version: int
    iterations: int
    ledger: LedgerRecord
    counts: npt.NDArray[np.int32]
    dense: Vector
    state: Vector
    counters: Counters
    slots: dict[str, Vector]
    tables: tuple[TableSpec, ...] = ()
    rows: Sequence[TableRows] = ()
    losses: LossSum = LossSum()
    folded: int = -1  # there are none

    @property
    def name(self) -> SnapshotName:
        return (self.era, self.version)

    def close(self) -> None:
        """Let go of the tables' images; the vectors stay."""
        for rows in self.rows:
            rows.close()

"""The embedding tables of one partition: rows in and out for all of them at once.

A request names rows of all tables in one list (messages: RowIds).  The rows themselves, their slots and the
optimizers' loops are in the compiled core; here a list is cut into tables' parts.  Rows come into being
when a gradient is applied to them, never by a pull (PROTOCOL: section 1).
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from edlz.core_ext.ids import merge_rows
from edlz.core_ext.optimizers import make_optimizer
from edlz.core_ext.table import EmbeddingTable, Initializer
from edlz.services.messages import Push, RowIds, TableSpec, TableTelemetry
from edlz.services.ps.state import MemoryRows, TableRows
from edlz.services.seeds import derive_seed

__all__ = ["Tables", "empty_rows", "row_width"]

Vector = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_TABLE_SEED = 3  # a name for derive_seed; 0 to 2 are orders and steps
_BLOCK_BYTES = 8 << 20  # read at once while a table is filled


class Tables:
    """All embedding tables of a partition.

    Parameters
    ----------
    specs : sequence of TableSpec
    seed : int
        The job's: a row's initial values follow from it, the table's place and the id.
    rows : sequence of TableRows
        What each table begins with.

    Raises
    ------
    ValueError
        If a table's optimizer or initializer is not supported, or its rows are of another width.
    """

    def __init__(self, specs: Sequence[TableSpec], seed: int, rows: Sequence[TableRows]) -> None:
        self.specs = tuple(specs)
        self._dims = [spec.dim for spec in self.specs]
        self._optimizers = [make_optimizer(s.optimizer.name, s.optimizer.settings) for s in self.specs]
        self._tables = [self._make(place, seed) for place in range(len(self.specs))]
        for table, spec, source in zip(self._tables, self.specs, rows, strict=True):
            if source.width != table.width:
                raise ValueError(f"rows of {spec.path} have {source.width} numbers, not {table.width}")
            _fill(table, source)
        self._before: list[tuple[Ids, Vector]] = []  # of the last commit: its rows' values until then
        self._read = [0] * len(self._tables)  # rows since the beginning, for display ...
        self._unknown = [0] * len(self._tables)
        self._created = [0] * len(self._tables)

    def _make(self, place: int, seed: int) -> EmbeddingTable:
        spec = self.specs[place]
        slots = [(slot.size, slot.initial) for slot in self._optimizers[place].row_slots(spec.dim)]
        about = spec.initializer
        initializer = Initializer(about.kind, about.a, about.b)
        return EmbeddingTable(spec.dim, slots, initializer, derive_seed(seed, _TABLE_SEED, place))

    def __len__(self) -> int:
        return len(self.specs)

    @property
    def memory_bytes(self) -> int:
        return sum(table.memory_bytes for table in self._tables)

    def telemetry(self) -> tuple[TableTelemetry, ...]:
        """Return what a screen shows of the tables."""
        return tuple(
            TableTelemetry(
                path=spec.path,
                rows=table.row_count,
                memory_bytes=table.memory_bytes,
                rows_read=self._read[place],
                rows_unknown=self._unknown[place],
                rows_created=self._created[place],
            )
            for place, (spec, table) in enumerate(zip(self.specs, self._tables, strict=True))
        )

    def digests(self) -> tuple[int, ...]:
        """Return of each table the sum modulo 2**128 of its rows' hashes."""
        return tuple(table.digest() for table in self._tables)

    def freeze(self) -> tuple[TableRows, ...]:
        """Return the rows as they are now; later steps do not change them.  To be closed."""
        return tuple(table.freeze() for table in self._tables)

    # -- reading

    def check(self, rows: RowIds, gradients: Vector | None = None) -> None:
        """Raise ValueError if a list of rows does not fit the tables, or its gradients do not fit it."""
        if len(rows.counts) != len(self.specs) or min(rows.counts, default=0) < 0:
            raise ValueError(f"rows of {rows.counts} for {len(self.specs)} tables")
        if rows.ids.shape != (sum(rows.counts),):
            raise ValueError(f"ids of shape {rows.ids.shape} for {sum(rows.counts)} rows")
        size = self._size(rows)
        if gradients is not None and gradients.shape != (size,):
            raise ValueError(f"rows' gradients have shape {gradients.shape}, their ids give {(size,)}")

    def check_push(self, push: Push) -> None:
        """Raise ValueError if a push's rows, their gradients and rates do not fit; nothing has changed."""
        if (push.rows is None) != (push.row_gradients is None):
            raise ValueError("rows without gradients, or gradients without rows")
        if push.rows is not None:
            self.check(push.rows, push.row_gradients)
        if len(push.table_rates) not in (0, len(self.specs)):
            raise ValueError(f"{len(push.table_rates)} learning rates for {len(self.specs)} tables")

    def gather(self, rows: RowIds) -> Vector:
        """Return the rows' values, one after another; those of unknown ids are their initial ones."""
        out = np.empty(self._size(rows), np.float32)
        for place, (ids, part) in enumerate(self._cut(rows, out)):
            if len(ids):
                self._unknown[place] += self._tables[place].gather(ids, part)
                self._read[place] += len(ids)
        return out

    def gather_before(self, rows: RowIds) -> Vector:
        """Return the rows' values of before the last commit."""
        out = self.gather(rows)
        for (ids, part), (changed, values), dim in zip(
            self._cut(rows, out), self._before, self._dims, strict=True
        ):
            _, here, there = np.intersect1d(ids, changed, assume_unique=True, return_indices=True)
            part.reshape(-1, dim)[here] = values.reshape(-1, dim)[there]
        return out

    # -- changing

    def apply(self, push: Push, rate_scale: float, iteration: int) -> None:
        """Apply one push's rows at once, each table at its learning rate times `rate_scale`."""
        if push.rows is None or push.row_gradients is None:
            return
        parts = self._cut(push.rows, push.row_gradients)
        for place, ((ids, gradients), rate) in enumerate(zip(parts, self._rates(push), strict=True)):
            if len(ids):
                self._step(place, ids, gradients, rate * rate_scale, iteration, None)

    def commit(self, pushes: Sequence[Push], iteration: int) -> None:
        """Apply the mean of some pushes, their rows added up in this order; keep the values of before."""
        rates = self._rates(pushes[0])
        cut = [
            list(self._cut(push.rows, push.row_gradients))
            for push in pushes
            if push.rows is not None and push.row_gradients is not None
        ]
        self._before = []
        for place, (dim, rate) in enumerate(zip(self._dims, rates, strict=True)):
            parts = [(ids, part.reshape(-1, dim)) for ids, part in (tables[place] for tables in cut)]
            ids, gradients = merge_rows(parts, len(pushes)) if parts else (_NO_IDS, _NO_VALUES)
            before = np.empty(len(ids) * dim, np.float32)
            if len(ids):
                self._step(place, ids, gradients.reshape(-1), rate, iteration, before)
            self._before.append((ids, before))

    def forget_before(self) -> None:
        """The last commit changed no row: the values of before are those of now."""
        self._before = [(_NO_IDS, _NO_VALUES)] * len(self.specs)

    def _step(
        self, place: int, ids: Ids, gradients: Vector, rate: float, iteration: int, before: Vector | None
    ) -> None:
        step = self._optimizers[place].step(rate, iteration)
        self._created[place] += self._tables[place].apply(step.packed, ids, gradients, before)

    def _rates(self, push: Push) -> Sequence[float]:
        return push.table_rates or (push.learning_rate,) * len(self.specs)

    # -- parts

    def _size(self, rows: RowIds) -> int:
        return sum(count * dim for count, dim in zip(rows.counts, self._dims, strict=True))

    def _cut(self, rows: RowIds, vector: Vector) -> Iterator[tuple[Ids, Vector]]:
        """Yield each table's ids and its part of a vector over all rows."""
        ends = accumulate(rows.counts)
        float_ends = accumulate(count * dim for count, dim in zip(rows.counts, self._dims, strict=True))
        for count, dim, end, float_end in zip(rows.counts, self._dims, ends, float_ends, strict=True):
            yield rows.ids[end - count : end], vector[float_end - count * dim : float_end]


_NO_IDS = np.empty(0, np.int64)
_NO_VALUES = np.empty(0, np.float32)


def row_width(spec: TableSpec) -> int:
    """Return how many numbers a row of this table has, slots included."""
    optimizer = make_optimizer(spec.optimizer.name, spec.optimizer.settings)
    return spec.dim + sum(slot.size for slot in optimizer.row_slots(spec.dim))


def empty_rows(spec: TableSpec) -> TableRows:
    """Return what a table has before training: no row."""
    return MemoryRows(_NO_IDS, np.empty((0, row_width(spec)), np.float32))


def _fill(table: EmbeddingTable, source: TableRows) -> None:
    """Read all rows straight into the table's memory, block by block; meanwhile a thread indexes their ids."""
    count, width = source.row_count, source.width
    if not count:
        return
    view = table.extend(count)
    with ThreadPoolExecutor(1, thread_name_prefix="index") as indexing:
        indexed = indexing.submit(table.index, source.ids)
        block = max(1, _BLOCK_BYTES // (4 * width))
        buffer = None if view.flags.c_contiguous else np.empty(block * width, np.float32)
        for first in range(0, count, block):
            part = view[first : first + block]
            if buffer is None:
                source.read(first, len(part), part.reshape(-1))
            else:
                source.read(first, len(part), buffer[: len(part) * width])
                part[:] = buffer[: len(part) * width].reshape(-1, width)
        indexed.result()

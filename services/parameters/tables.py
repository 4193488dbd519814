"""The embedding tables of one partition: rows in and out for all of them at once.

A request names rows of all tables in one list (messages: RowIds).  The rows themselves, their slots and the
optimizers' loops are in the compiled core; here a list is cut into tables' parts.  Rows come into being
when a gradient is applied to them, never by a pull (PROTOCOL: section 1).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import mul

import numpy as np
import numpy.typing as npt

from edlz.core_ext.ids import merge_rows
from edlz.core_ext.optimizers import Optimizer, make_optimizer
from edlz.core_ext.table import EmbeddingTable, Initializer
from edlz.services.protocol.messages import Push, RowIds, TableSpec, TableTelemetry
from edlz.services.protocol.seeds import table_seed
from edlz.services.storage.state import MemoryRows, TableRows

__all__ = ["Tables", "empty_rows", "row_width"]

Vector = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)  # comparing with a class makes one of it
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

    Attributes
    ----------
    optimizers : list of Optimizer
        Those of all tables; tables with equal ones share it, and its steps.

    Raises
    ------
    ValueError
        If a table's optimizer or initializer is not supported, or its rows are of another width.
    """

    def __init__(self, specs: Sequence[TableSpec], seed: int, rows: Sequence[TableRows]) -> None:
        self.specs = tuple(specs)
        self._dims = [spec.dim for spec in self.specs]
        made = [make_optimizer(s.optimizer.name, s.optimizer.settings) for s in self.specs]
        self.optimizers = [o for place, o in enumerate(made) if o not in made[:place]]
        self._optimizer_of = [self.optimizers.index(optimizer) for optimizer in made]  # each table's
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
        slots = [(slot.size, slot.initial) for slot in self._optimizer(place).row_slots(spec.dim)]
        about = spec.initializer
        initializer = Initializer(about.kind, about.a, about.b)
        return EmbeddingTable(spec.dim, slots, initializer, table_seed(seed, place))

    def _optimizer(self, place: int) -> Optimizer:
        return self.optimizers[self._optimizer_of[place]]

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
        counts, ids = rows.counts, rows.ids
        if len(counts) != len(self._dims) or (counts and min(counts) < 0):
            raise ValueError(f"rows of {counts} for {len(self.specs)} tables")
        if ids.shape != (sum(counts),):
            raise ValueError(f"ids of shape {ids.shape} for {sum(counts)} rows")
        if ids.dtype != _INT64:
            raise ValueError(f"ids are {ids.dtype}, not int64")
        if gradients is not None and gradients.shape != (size := sum(map(mul, counts, self._dims)),):
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
        if len(rows.counts) == 1:  # most models: nothing is to be cut
            out = np.empty(rows.counts[0] * self._dims[0], _FLOAT32)
            self._unknown[0] += self._tables[0].gather(rows.ids, out)
            self._read[0] += rows.counts[0]
            return out
        out = np.empty(sum(map(mul, rows.counts, self._dims)), _FLOAT32)
        for place, ids, part in self._cut(rows, out):
            self._unknown[place] += self._tables[place].gather(ids, part)
            self._read[place] += len(ids)
        return out

    def gather_before(self, rows: RowIds) -> Vector:
        """Return the rows' values of before the last commit."""
        out = self.gather(rows)
        for place, ids, part in self._cut(rows, out):
            (changed, values), dim = self._before[place], self._dims[place]
            _, here, there = np.intersect1d(ids, changed, assume_unique=True, return_indices=True)
            part.reshape(-1, dim)[here] = values.reshape(-1, dim)[there]
        return out

    # -- changing

    def steps(self, push: Push, rate_scale: float, iteration: int) -> list[bytes]:
        """Return each table's step for the kernels; raises ValueError if an optimizer takes no such rate."""
        if not push.table_rates:
            rate = push.learning_rate * rate_scale
            made = [optimizer.packed_row_step(rate, iteration) for optimizer in self.optimizers]
            return [made[number] for number in self._optimizer_of]
        return [
            self.optimizers[number].packed_row_step(rate * rate_scale, iteration)
            for number, rate in zip(self._optimizer_of, push.table_rates, strict=True)
        ]

    def apply(self, push: Push, steps: Sequence[bytes]) -> None:
        """Apply one push's rows at once, by each table's step."""
        if push.rows is None or push.row_gradients is None:
            return
        if len(steps) == 1:  # most models: nothing is to be cut
            self._created[0] += self._tables[0].apply(steps[0], push.rows.ids, push.row_gradients)
            return
        for place, ids, gradients in self._cut(push.rows, push.row_gradients):
            self._created[place] += self._tables[place].apply(steps[place], ids, gradients)

    def commit(self, pushes: Sequence[Push], steps: Sequence[bytes]) -> None:
        """Apply the mean of some pushes, their rows added up in this order; keep the values of before."""
        parts: list[list[tuple[Ids, Vector]]] = [[] for _ in self.specs]
        for push in pushes:
            if push.rows is not None and push.row_gradients is not None:
                for place, ids, part in self._cut(push.rows, push.row_gradients):
                    parts[place].append((ids, part.reshape(-1, self._dims[place])))
        self._before = []
        for place, dim in enumerate(self._dims):
            own = parts[place]
            ids, gradients = merge_rows(own, len(pushes)) if own else (_NO_IDS, _NO_VALUES)
            before = np.empty(len(ids) * dim, np.float32)
            if len(ids):
                table = self._tables[place]
                self._created[place] += table.apply(steps[place], ids, gradients.reshape(-1), before)
            self._before.append((ids, before))

    def forget_before(self) -> None:
        """The last commit changed no row: the values of before are those of now."""
        self._before = [(_NO_IDS, _NO_VALUES)] * len(self.specs)

    # -- parts

    def _cut(self, rows: RowIds, vector: Vector) -> list[tuple[int, Ids, Vector]]:
        """Return the place, the ids and the part of a vector over all rows of each table that has any there."""
        ids, first, first_float = rows.ids, 0, 0
        if len(rows.counts) == 1:
            return [(0, ids, vector)] if len(ids) else []
        parts = []
        for place, count in enumerate(rows.counts):
            if count:
                end, float_end = first + count, first_float + count * self._dims[place]
                parts.append((place, ids[first:end], vector[first_float:float_end]))
                first, first_float = end, float_end
        return parts


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

"""Twin of the compiled embedding table: a dict of rows, same values and bits, hundreds of times slower.

It says what each method does and is the measure in the table's tests.  Arguments are not checked.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edlz.core_ext.initializers import Initializer
from edlz.core_ext.initializers_numpy import initial_values, mix64
from edlz.core_ext.memory import Float32Array
from edlz.core_ext.steps_numpy import take_step

__all__ = ["EmbeddingTable", "TableImage"]

_Int64Array = npt.NDArray[np.int64]
_WORD = 2**64
_LOW, _HIGH = 0x243F6A8885A308D3, 0x13198A2E03707345


class EmbeddingTable:
    """Rows of float32 keyed by any int64 id; each has values and optimizer slots.

    Parameters
    ----------
    dim : int
        Values of a row, 1 to 4096.
    slots : sequence of (int, float)
        For each optimizer slot, in the optimizer's order: elements a row, and what they hold at first.
    initializer : Initializer
        Distribution of the values of a new row.
    seed : int
        In [0, 2**64); a row's initial values follow from it and the row's id alone.
    row_limit : int, optional
        Most rows; by default what this machine's memory could hold, and never over 2**32 - 2.

    Raises
    ------
    ValueError
        If a number is out of its range.
    MemoryError
        If the operating system gives no address space.
    """

    def __init__(
        self,
        dim: int,
        slots: Sequence[tuple[int, float]],
        initializer: Initializer,
        seed: int,
        row_limit: int = 2**32 - 2,
    ) -> None:
        self.dim, self.slots, self.initializer, self.seed = dim, tuple(slots), initializer, seed
        self.width = dim + sum(size for size, _ in self.slots)
        self.row_limit = row_limit
        self._rows: dict[int, Float32Array] = {}  # in the order of their making
        self._pending: Float32Array = np.empty((0, self.width), np.float32)

    @property
    def row_count(self) -> int:
        """Number of rows that can be found."""
        return len(self._rows)

    def ids(self) -> _Int64Array:
        """Return the ids in the order of the rows, shape (row_count,), read-only."""
        ids = np.array(list(self._rows), np.int64)
        ids.flags.writeable = False
        return ids

    def gather(self, ids: _Int64Array, out: Float32Array) -> int:
        """Copy the values of some rows; an unknown id gives its initial ones and is not created.

        Parameters
        ----------
        ids : ndarray, shape (n,), int64
            May repeat.
        out : ndarray, shape (n, dim) or (n * dim,), float32
            Written.

        Returns
        -------
        int
            How many of the ids are unknown.

        Raises
        ------
        ValueError
            If the arrays do not fit; nothing has been written.
        """
        values = out.reshape(len(ids), self.dim)
        for place, row_id in enumerate(ids.tolist()):
            row = self._rows.get(row_id)
            values[place] = self._initial(row_id) if row is None else row[: self.dim]
        return sum(row_id not in self._rows for row_id in ids.tolist())

    def apply(
        self, step: bytes, ids: _Int64Array, gradients: Float32Array, before: Float32Array | None = None
    ) -> int:
        """Take one optimizer step on each row, in place; a missing row is created first.

        Parameters
        ----------
        step : bytes
            `steps.Step.packed`.
        ids : ndarray, shape (n,), int64
            Distinct is the caller's part: an id that repeats takes one step for each time, in their order.
        gradients : ndarray, shape (n, dim) or (n * dim,), float32
        before : ndarray, shape (n, dim) or (n * dim,), float32, optional
            Written: each row's values from before its step; not to be relied on for an id that repeats.

        Returns
        -------
        int
            How many rows were created.

        Raises
        ------
        ValueError
            If the arrays do not fit, the step is no step for this table's slots, or rows of `extend` wait for
            their `index`; nothing has been changed.
        MemoryError
            If the rows that would be created do not fit; nothing has been changed.
        """
        row_count = self.row_count
        for place, row_id in enumerate(ids.tolist()):
            row = self._rows[row_id] = self._rows[row_id] if row_id in self._rows else self._new_row(row_id)
            values, *slots = np.split(row, np.cumsum([self.dim, *(size for size, _ in self.slots)])[:-1])
            if before is not None:
                before.reshape(len(ids), self.dim)[place] = values
            values[:] = take_step(step, values, slots, gradients.reshape(len(ids), self.dim)[place])
        return self.row_count - row_count

    def digest(self) -> int:
        """Return the sum modulo 2**128 of a hash of each row: id, values and slots, by their bits.

        It depends on what the rows are, not on their order or history; 0 without rows.
        """
        return sum(_row_hash(row_id, row) for row_id, row in self._rows.items()) % 2**128

    def freeze(self) -> "TableImage":
        """Return the table as it is now; several images may be open at once, each to be closed.

        While one is open, a row is saved before its first change, so memory grows by the rows that change.

        Raises
        ------
        MemoryError
            If there is no memory for its bookkeeping (1 bit a row).
        """
        return TableImage(self.ids(), np.array(list(self._rows.values())), self.width)

    def extend(self, count: int) -> Float32Array:
        """Give room to new rows, to be written by the caller and then made findable by `index`.

        Parameters
        ----------
        count : int
            Number of rows; replaces what waits from an earlier call.

        Returns
        -------
        ndarray, shape (count, width), float32
            The memory of the rows itself: values, then slots; undefined at first.  Not contiguous if rows
            are padded.  Not to be written any more once `index` was called.

        Raises
        ------
        MemoryError
            If the rows do not fit; nothing has been changed.
        """
        self._pending = np.empty((count, self.width), np.float32)
        return self._pending

    def index(self, ids: _Int64Array) -> None:
        """Make the rows of the last `extend` findable.

        Parameters
        ----------
        ids : ndarray, shape (count,), int64
            As many as rows wait.

        Raises
        ------
        ValueError
            If an id is in the table already or repeats: then nothing of these rows stays.  If there are not
            as many ids as rows: then they go on waiting.
        """
        pending, self._pending = self._pending, self._pending[:0]
        if len(set(ids.tolist())) < len(ids) or not self._rows.keys().isdisjoint(ids.tolist()):
            raise ValueError("an id is in the table already or comes twice")
        self._rows.update(zip(ids.tolist(), pending, strict=True))

    def _initial(self, row_id: int) -> Float32Array:
        return initial_values(self.initializer, self.seed, row_id, self.dim)

    def _new_row(self, row_id: int) -> Float32Array:
        slots = [np.full(size, initial, np.float32) for size, initial in self.slots]
        return np.concatenate([self._initial(row_id), *slots])


class TableImage:
    """The rows of a table as they were when it was frozen; it keeps the table alive until it is closed.

    Parameters
    ----------
    ids : ndarray, shape (n,), int64
    rows : ndarray, shape (n, width), float32
    width : int
        Of a row, its optimizer slots included.
    """

    def __init__(self, ids: _Int64Array, rows: Float32Array, width: int) -> None:
        self.ids, self.row_count, self.width = ids, len(ids), width
        self._rows = rows

    def read(self, first: int, count: int, out: Float32Array) -> None:
        """Copy rows [first, first + count), in the order of `ids`, each as values, then slots.

        Parameters
        ----------
        first, count : int
            Within the image.
        out : ndarray, shape (count * width,), float32
            Written.

        Raises
        ------
        ValueError
            If the range or `out` does not fit, the image is closed or rows of the range were released.
        """
        out[:] = self._rows[first : first + count].reshape(-1)

    def release_below(self, stop: int) -> None:
        """Promise not to read the rows below `stop` again: they are not saved any more when they change.

        Who reads an image from front to back and says so needs half of the memory.
        """

    def close(self) -> None:
        """Let go of what was saved; the image cannot be read any more.  To be repeated at will."""


def _row_hash(row_id: int, row: Float32Array) -> int:
    low, high = mix64(row_id), mix64(~row_id)
    words = np.zeros((len(row) + 1) // 2 * 2, np.uint32)
    words[: len(row)] = row.view(np.uint32)
    for word in words.view(np.uint64).tolist():
        low, high = _folded(low ^ word, _LOW), _folded((high + word) % _WORD, _HIGH)
    return mix64(high) << 64 | mix64(low)


def _folded(a: int, b: int) -> int:
    product = a * b
    return product % _WORD ^ product >> 64

"""The rows of a table that lie in a file."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.services.storage.blocks import BlockReader, DamagedFile

__all__ = ["FileRows", "OnDamage"]

Array = npt.NDArray[Any]
OnDamage = Callable[[DamagedFile], None]


class FileRows:
    """The rows of a table in a file: TableRows that copies from the disk into the caller's buffer.

    Parameters
    ----------
    reader : BlockReader
        Of the file.
    ids, rows : int
        Where they begin in it, in bytes.
    count, width : int
        How many rows, and how many float32 in each.
    on_damage : callable, optional
        Told of damage before it is raised.

    `ids` and `read` raise DamagedFile if what they read is not what was written; nothing that was read
    from this object before must be used then.
    """

    def __init__(
        self, reader: BlockReader, ids: int, rows: int, count: int, width: int, on_damage: OnDamage | None
    ) -> None:
        self._reader, self._ids_offset, self._rows_offset = reader, ids, rows
        self._count, self._width, self._on_damage = count, width, on_damage
        self._ids: npt.NDArray[np.int64] | None = None

    @property
    def row_count(self) -> int:
        return self._count

    @property
    def width(self) -> int:
        return self._width

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        if self._ids is None:
            self._ids = np.empty(self._count, np.int64)
            self.read_ids(0, self._count, self._ids)
        return self._ids

    def read_ids(self, first: int, count: int, out: npt.NDArray[np.int64]) -> None:
        """Copy the ids of rows [first, first + count) into `out`, shape (count,)."""
        self._read(self._ids_offset + 8 * first, first, count, out, 8 * count)

    def read(self, first: int, count: int, out: npt.NDArray[np.float32]) -> None:
        """Copy rows [first, first + count) into `out`, shape (count * width,)."""
        row_bytes = 4 * self._width
        self._read(self._rows_offset + row_bytes * first, first, count, out, row_bytes * count)

    def close(self) -> None:
        """Let go of the file."""
        self._ids = None
        self._reader.close()

    def _read(self, offset: int, first: int, count: int, out: Array, size: int) -> None:
        if not 0 <= first <= first + count <= self._count:
            raise ValueError(f"rows {first} to {first + count} of {self._count} do not exist")
        if out.nbytes != size:
            raise ValueError(f"{count} rows are {size} bytes, the buffer has {out.nbytes}")
        try:
            self._reader.read(offset, out)
        except DamagedFile as e:
            if self._on_damage is not None:
                self._on_damage(e)
            raise

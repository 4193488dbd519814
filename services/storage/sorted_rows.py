"""The rows of a table in the order of their ids, whichever number of partitions has written them.

Theory of operation.  Rows lie in the files in the order in which they were made, so a table in order is a sort of
everything.  It is done on the disk.  All ids are read and sorted (8 bytes a row, the most that is ever in memory)
to find where blocks of equally many rows begin; then they are let go.  The files are read once, from their
beginnings to their ends, and each row goes to the place of its block in a scratch file, which has no name and so
leaves nothing behind.  A block that is read back from there is small enough to be sorted in memory.  A table of
one block needs no scratch file.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from edlz.services.storage.durable import write_all
from edlz.services.storage.file_rows import FileRows

__all__ = ["BLOCK_BYTES", "SortedRows"]

BLOCK_BYTES = 16 << 20  # of ids and values that are given out at once
_READ_BYTES = 8 << 20  # of rows, with their slots, that are read at once
_MOST_BLOCKS = 512  # more of them make each one's pieces in the scratch file small

Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]


class SortedRows:
    """The ids and values of a table's rows, without their slots, in ascending order of the ids.

    Parameters
    ----------
    sources : sequence of FileRows
        The table's rows in each partition's file; closed with this object.
    dim : int
        Values of a row: the first ones.
    scratch : Path
        A folder with room for the ids and values.
    block_bytes : int, optional
        What blocks follow from, with the number of rows; nothing else decides where they begin.
    on_progress : callable, optional
        Called again and again while rows are read and sorted, with how many were given out since.
    """

    def __init__(
        self,
        sources: Sequence[FileRows],
        dim: int,
        scratch: Path,
        block_bytes: int = BLOCK_BYTES,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._sources, self._dim, self._scratch, self._on_progress = sources, dim, scratch, on_progress
        self.row_count = sum(source.row_count for source in sources)
        self.block_rows = max(1, block_bytes // (8 + 4 * dim), -(-self.row_count // _MOST_BLOCKS))

    def close(self) -> None:
        """Let go of the files."""
        for source in self._sources:
            source.close()

    def blocks(self) -> Iterator[tuple[Ids, Rows]]:
        """Return the rows block by block.

        Yields
        ------
        ids : ndarray, shape (m,), ascending
        values : ndarray, shape (m, dim)

        Raises
        ------
        DamagedFile
            If what is read is not what was written; nothing that was yielded before must be used then.
        OSError
            If a file cannot be read, or the scratch file not be written.
        """
        if self.row_count <= self.block_rows:
            if self.row_count:
                pieces = list(self._pieces())
                self._on_progress(self.row_count)
                yield _sorted(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
            return
        with tempfile.TemporaryFile(dir=self._scratch, buffering=0) as file:
            self._distribute(file)
            for first in range(0, self.row_count, self.block_rows):
                yield self._read_block(file, first, min(self.block_rows, self.row_count - first))

    def _pieces(self) -> Iterator[tuple[Ids, Rows]]:
        """All ids and values in the order of the files."""
        for source in self._sources:
            size = max(1, _READ_BYTES // (8 + 4 * source.width))
            for first in range(0, source.row_count, size):
                count = min(size, source.row_count - first)
                ids, rows = np.empty(count, np.int64), np.empty((count, source.width), np.float32)
                source.read_ids(first, count, ids)
                source.read(first, count, rows.reshape(-1))
                self._on_progress(0)
                yield ids, rows[:, : self._dim]

    def _first_ids(self) -> Ids:
        """Return the least id of each block."""
        ids, end = np.empty(self.row_count, np.int64), 0
        for source in self._sources:
            start, end = end, end + source.row_count
            source.read_ids(0, source.row_count, ids[start:end])
        ids.sort()
        return ids[:: self.block_rows].copy()

    def _distribute(self, file: IO[bytes]) -> None:
        """Write each row to a place in its block; inside of a block they lie as they came."""
        first_ids = self._first_ids()
        filled = np.arange(len(first_ids), dtype=np.int64) * self.block_rows
        for ids, values in self._pieces():
            blocks = np.searchsorted(first_ids, ids, side="right") - 1
            order = np.argsort(blocks, kind="stable")
            ids, values = ids[order], values[order]
            counts = np.bincount(blocks, minlength=len(first_ids))
            start = 0
            for block in np.flatnonzero(counts).tolist():
                end, place = start + int(counts[block]), int(filled[block])
                self._write(file, 8 * place, ids[start:end])
                self._write(file, self._values_at(place), values[start:end])
                filled[block] += end - start
                start = end

    def _read_block(self, file: IO[bytes], first: int, count: int) -> tuple[Ids, Rows]:
        ids, values = np.empty(count, np.int64), np.empty((count, self._dim), np.float32)
        _read(file, 8 * first, ids)
        _read(file, self._values_at(first), values)
        self._on_progress(count)
        return _sorted(ids, values)

    def _write(self, file: IO[bytes], offset: int, data: npt.NDArray[np.generic]) -> None:
        os.lseek(file.fileno(), offset, os.SEEK_SET)
        write_all(file.fileno(), memoryview(data).cast("B"), self._scratch)  # type: ignore[arg-type]

    def _values_at(self, place: int) -> int:
        return 8 * self.row_count + 4 * self._dim * place


def _sorted(ids: Ids, values: Rows) -> tuple[Ids, Rows]:
    order = np.argsort(ids)
    return ids[order], values[order]


def _read(file: IO[bytes], offset: int, out: npt.NDArray[np.generic]) -> None:
    view, done = memoryview(out).cast("B"), 0  # type: ignore[arg-type]
    while done < len(view):
        count = os.preadv(file.fileno(), [view[done:]], offset + done)
        if not count:
            raise OSError(f"the scratch file ends at byte {offset + done}")
        done += count

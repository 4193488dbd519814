"""A partition's share of tables that were written by another number of partitions.

Rows go to `hash(id) mod N`, so the share is found by looking at every id; a table is gone through in blocks,
and no foreign one is ever held whole.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edlz.core_ext.ids import partition_of
from edlz.services.storage.file_rows import FileRows

__all__ = ["SharedRows"]

BLOCK_BYTES = 4 << 20  # of rows that are read to pick from

Ids = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float32]


class _Block(NamedTuple):
    source: FileRows
    first: int
    row_count: int


class SharedRows:
    """TableRows of those rows of a table, kept in several files, that belong to one partition.

    Parameters
    ----------
    sources : sequence of FileRows
        The table's rows in each file; closed with this object.
    partition, partitions : int
        Whose rows, of how many partitions.

    Raises
    ------
    DamagedFile
        If the ids are damaged; later `read` raises it for rows.
    """

    def __init__(self, sources: Sequence[FileRows], partition: int, partitions: int) -> None:
        self._sources, self._partition, self._partitions = sources, partition, partitions
        self._width = sources[0].width
        self._blocks: list[_Block] = []  # those with rows of ours
        self._ends: list[int] = []  # for each, how many rows of ours there are up to its end
        self._read_block = -1  # whose rows lie in `_rows`
        self._rows: Vector = np.empty((0, self._width), np.float32)
        ids = [np.empty(0, np.int64)]
        for block in self._all_blocks():
            own = self._own_ids(block)
            if len(own):
                ids.append(own)
                self._blocks.append(block)
                self._ends.append((self._ends[-1] if self._ends else 0) + len(own))
        self._ids = np.concatenate(ids)

    @property
    def row_count(self) -> int:
        return len(self._ids)

    @property
    def width(self) -> int:
        return self._width

    @property
    def ids(self) -> Ids:
        return self._ids

    def read(self, first: int, count: int, out: Vector) -> None:
        """Copy rows [first, first + count) into `out`, shape (count * width,)."""
        if not 0 <= first <= first + count <= self.row_count:
            raise ValueError(f"rows {first} to {first + count} of {self.row_count} do not exist")
        rows, done = out.reshape(count, self._width), 0
        while done < count:
            place = bisect_right(self._ends, first + done)
            self._load(place)
            skipped = first + done - (self._ends[place] - len(self._rows))
            piece = self._rows[skipped : skipped + count - done]
            rows[done : done + len(piece)] = piece
            done += len(piece)

    def close(self) -> None:
        """Let go of the files."""
        for source in self._sources:
            source.close()

    def _all_blocks(self) -> Iterator[_Block]:
        size = max(1, BLOCK_BYTES // (4 * max(1, self._width)))
        for source in self._sources:
            for first in range(0, source.row_count, size):
                yield _Block(source, first, min(size, source.row_count - first))

    def _all_ids(self, block: _Block) -> Ids:
        ids = np.empty(block.row_count, np.int64)
        block.source.read_ids(block.first, block.row_count, ids)
        return ids

    def _own_ids(self, block: _Block) -> Ids:
        ids = self._all_ids(block)
        own: Ids = ids[partition_of(ids, self._partitions) == self._partition]
        return own

    def _load(self, place: int) -> None:
        """Have the own rows of a block in `_rows`."""
        if place == self._read_block:
            return
        block = self._blocks[place]
        is_own = partition_of(self._all_ids(block), self._partitions) == self._partition
        rows = np.empty((block.row_count, self._width), np.float32)
        block.source.read(block.first, block.row_count, rows.reshape(-1))
        self._rows = rows if is_own.all() else rows[is_own]
        self._read_block = place

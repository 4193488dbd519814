"""All parts of one cut, open side by side: whoever needs the whole model reads it here.

Vectors are put together from the parts' slices.  Tables stay in the files: their rows are asked for in blocks.
Files that are open stay readable, so a checkpoint may be pruned meanwhile.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.services.errors import DataError
from edlz.services.protocol.layout import slice_bounds
from edlz.services.storage.blocks import DamagedFile
from edlz.services.storage.checkpoint_records import Part, is_listed, part_head, read_manifest
from edlz.services.storage.file_rows import FileRows
from edlz.services.storage.state_file import StateFile
from edlz.services.storage.state_head import StateHead

__all__ = ["WholeCut"]

Array = npt.NDArray[Any]


class WholeCut:
    """The parts of a cut.

    Parameters
    ----------
    heads : sequence of Path
        The head of each partition's state, that of partition i at place i.
    listed : sequence of Part, optional
        What a manifest says of them.

    Attributes
    ----------
    counts : ndarray, shape (tasks,), int32
        How often each task was applied, which is equal in all parts.

    Raises
    ------
    DataError
        If anything that was read is not what was written, or the parts are not one cut.
    OSError
        If a file cannot be read, as of every method.
    """

    def __init__(self, heads: Sequence[Path], listed: Sequence[Part] = ()) -> None:
        with ExitStack() as stack:
            self._files = [stack.enter_context(StateFile(head)) for head in heads]
            for head, file, part in zip(heads, self._files, listed, strict=False):
                if not is_listed(part, file.head, file.head_data):
                    raise DamagedFile(head, "checksum: not the file that the manifest lists")
            self.counts: npt.NDArray[np.int32] = _equal_in_all(heads[0].parent, self._files)
            self._open = stack.pop_all()

    @classmethod
    def of_checkpoint(cls, folder: Path) -> "WholeCut":
        """Open the parts that the manifest of a version lists."""
        manifest = read_manifest(folder)
        heads = [part_head(folder, i, manifest.partitions) for i in range(manifest.partitions)]
        return cls(heads, manifest.parts)

    def __enter__(self) -> "WholeCut":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files; rows that were given out stay readable."""
        self._open.close()

    @property
    def head(self) -> StateHead:
        """The head of the first part; what differs in the others is below."""
        return self._files[0].head

    @property
    def version(self) -> int:
        return max(file.head.version for file in self._files)

    @property
    def iterations(self) -> int:
        return max(file.head.iterations for file in self._files)

    def row_count(self, table: int) -> int:
        """Return the rows of a table in all parts."""
        return sum(file.head.tables[table].row_count for file in self._files)

    def vector(self, name: str, partition: int = 0, partitions: int = 1) -> Array:
        """Return the slice of `dense`, `state`, `counters` or `slot.…` that one of several partitions owns."""
        layout = self.head.layout
        size = {"state": layout.state, "counters": layout.counters}.get(name, layout.dense).size
        lo, hi = slice_bounds(size, partition, partitions)
        pieces = [self._files[0].vector(name, 0, 0)]
        for i, file in enumerate(self._files):
            first, end = slice_bounds(size, i, len(self._files))
            begin, stop = max(lo, first), min(hi, end)
            if begin < stop:
                pieces.append(file.vector(name, begin - first, stop - begin))
        return np.concatenate(pieces) if len(pieces) != 2 else pieces[1]

    def sources(self, table: int) -> list[FileRows]:
        """Return the rows of a table in each part, for the caller to close."""
        return [file.rows(table) for file in self._files]


def _equal_in_all(folder: Path, files: Sequence[StateFile]) -> npt.NDArray[np.int32]:
    """Check that the parts are one cut; return how often each task was applied, which must be equal too."""
    first, counts = files[0].head, files[0].vector("counts")
    for i, file in enumerate(files):
        head = file.head
        ours = (head.partition, head.partitions, head.plan_hash, head.ledger, head.layout, head.optimizer)
        theirs = (i, len(files), first.plan_hash, first.ledger, first.layout, first.optimizer)
        specs = [(table.spec, table.width) for table in head.tables]
        is_equal = ours == theirs and head.slots == first.slots and head.folded == first.folded
        is_equal = is_equal and specs == [(table.spec, table.width) for table in first.tables]
        if not is_equal or not np.array_equal(counts, file.vector("counts")):
            raise DataError(f"{folder}: parts 0 and {i} are not of one checkpoint")
    return counts

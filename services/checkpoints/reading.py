"""Reading a checkpoint: the state of one of N' partitions, whatever number of them wrote it."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.services.checkpoints.blocks import DamagedFile
from edlz.services.checkpoints.records import is_listed, part_head, read_manifest
from edlz.services.checkpoints.repartition import SharedRows
from edlz.services.errors import DataError
from edlz.services.layout import slice_bounds
from edlz.services.messages import NO_IDENTITY
from edlz.services.ps.state import State, TableRows
from edlz.services.ps.state_file import StateFile

__all__ = ["read_partition"]

Array = npt.NDArray[Any]


def read_partition(folder: Path, partition: int, partitions: int) -> State:
    """Return what partition `partition` of `partitions` begins with from a version of a checkpoint.

    The slices of the vectors are cut anew, and the rows of the tables chosen anew; every partition gets the
    one ledger.  The vectors are read now, the rows as they are asked for; close the state afterwards.

    Parameters
    ----------
    folder : Path
        Of the version.

    Returns
    -------
    State
        Of era 0.0 and without a digest of the state before training, as what a job begins from.

    Raises
    ------
    DataError
        If anything that was read is not what the manifest says, or the parts are not one cut.  The rows
        of the tables raise it too, later: then what was made of them must be thrown away.
    """
    manifest = read_manifest(folder)
    with ExitStack() as stack:
        files = []
        for i, part in enumerate(manifest.parts):
            head = part_head(folder, i, manifest.partitions)
            files.append(file := stack.enter_context(StateFile(head)))
            if not is_listed(part, file.head, file.head_data):
                raise DamagedFile(head, "checksum: not the file that the manifest lists")
        counts = _equal_in_all(folder, files)
        about = files[0].head
        dense = about.layout.dense.size
        rows: list[TableRows] = []
        try:
            for table in range(len(about.tables)):
                rows.append(_rows(files, table, partition, partitions))
            return State(
                plan_hash=about.plan_hash,
                base_digest="",
                partition=partition,
                partitions=partitions,
                layout=about.layout,
                optimizer=about.optimizer,
                era=NO_IDENTITY,
                version=max(file.head.version for file in files),
                iterations=max(file.head.iterations for file in files),
                ledger=about.ledger,
                counts=counts,
                dense=_slice(files, "dense", dense, partition, partitions),
                state=_slice(files, "state", about.layout.state.size, partition, partitions),
                counters=_slice(files, "counters", about.layout.counters.size, partition, partitions),
                slots={s: _slice(files, f"slot.{s}", dense, partition, partitions) for s in about.slots},
                tables=tuple(table.spec for table in about.tables),
                rows=tuple(rows),
            )
        except BaseException:
            for opened in rows:
                opened.close()
            raise


def _equal_in_all(folder: Path, files: Sequence[StateFile]) -> npt.NDArray[np.int32]:
    """Check that the parts are one cut; return how often each task was applied, which must be equal too."""
    first, counts = files[0].head, files[0].vector("counts")
    for i, file in enumerate(files):
        head = file.head
        ours = (head.partition, head.partitions, head.plan_hash, head.ledger, head.layout, head.optimizer)
        theirs = (i, len(files), first.plan_hash, first.ledger, first.layout, first.optimizer)
        specs = [(table.spec, table.width) for table in head.tables]
        is_equal = ours == theirs and head.slots == first.slots
        is_equal = is_equal and specs == [(table.spec, table.width) for table in first.tables]
        if not is_equal or not np.array_equal(counts, file.vector("counts")):
            raise DataError(f"{folder}: parts 0 and {i} are not of one checkpoint")
    return counts


def _slice(files: Sequence[StateFile], name: str, size: int, partition: int, partitions: int) -> Array:
    """Return the part of a vector of `size` elements that a partition owns, from the parts it lies in."""
    lo, hi = slice_bounds(size, partition, partitions)
    pieces = [files[0].vector(name, 0, 0)]
    for i, file in enumerate(files):
        first, end = slice_bounds(size, i, len(files))
        begin, stop = max(lo, first), min(hi, end)
        if begin < stop:
            pieces.append(file.vector(name, begin - first, stop - begin))
    return np.concatenate(pieces) if len(pieces) != 2 else pieces[1]


def _rows(files: Sequence[StateFile], table: int, partition: int, partitions: int) -> TableRows:
    if len(files) == partitions:
        return files[partition].rows(table)
    sources = [file.rows(table) for file in files]
    try:
        return SharedRows(sources, partition, partitions)
    except BaseException:
        for source in sources:
            source.close()
        raise

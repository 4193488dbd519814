"""Reading a checkpoint: the state of one of N' partitions, whatever number of them wrote it."""

from collections.abc import Sequence
from pathlib import Path

from edlz.services.protocol.messages import NO_IDENTITY
from edlz.services.storage.file_rows import FileRows
from edlz.services.storage.repartition import SharedRows
from edlz.services.storage.state import State, TableRows
from edlz.services.storage.whole_cut import WholeCut

__all__ = ["read_partition"]


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
    with WholeCut.of_checkpoint(folder) as cut:
        rows: list[TableRows] = []
        try:
            for table in range(len(cut.head.tables)):
                rows.append(_rows(cut.sources(table), partition, partitions))
            return _state(cut, rows, partition, partitions)
        except BaseException:
            for opened in rows:
                opened.close()
            raise


def _state(cut: WholeCut, rows: Sequence[TableRows], partition: int, partitions: int) -> State:
    about, share = cut.head, (partition, partitions)
    return State(
        plan_hash=about.plan_hash,
        base_digest="",
        partition=partition,
        partitions=partitions,
        layout=about.layout,
        optimizer=about.optimizer,
        era=NO_IDENTITY,
        version=cut.version,
        iterations=cut.iterations,
        ledger=about.ledger,
        counts=cut.counts,
        dense=cut.vector("dense", *share),
        state=cut.vector("state", *share),
        counters=cut.vector("counters", *share),
        slots={slot: cut.vector(f"slot.{slot}", *share) for slot in about.slots},
        tables=tuple(table.spec for table in about.tables),
        rows=tuple(rows),
        losses=about.losses,
        folded=about.folded,
    )


def _rows(sources: Sequence[FileRows], partition: int, partitions: int) -> TableRows:
    if len(sources) == partitions:
        for place, source in enumerate(sources):
            if place != partition:
                source.close()
        return sources[partition]
    try:
        return SharedRows(sources, partition, partitions)
    except BaseException:
        for source in sources:
            source.close()
        raise

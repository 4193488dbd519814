"""The complete checkpoints of a job's run, as a partition may go back to them like to its own snapshots.

Theory of operation.  A part of a checkpoint is a partition's state at a cut, in the two files that a snapshot
has, so a partition that was lost can take its own part, if the checkpoint is complete, was written by this run
for as many partitions and the same plan, and is of the present history: no task has been ended since, which may
be computed beyond its end there.  Another number of partitions, another run and another history have the same
file names, so the manifest decides, never a name.

A synchronous job goes back to what all partitions have by one name.  Parts of a cut may be of several eras (a
partition that was not lost has its part already when the others cut once more), so all of them are named by the
newest one.

The list is made anew when the partition begins and when the master says that a checkpoint has been completed, not
at each status: a folder may hold thousands of versions.
"""

import logging
from pathlib import Path

import msgspec

from edlz.services.protocol.messages import NO_IDENTITY, Ends, Job, SnapshotName
from edlz.services.storage.blocks import DamagedFile
from edlz.services.storage.checkpoint_records import (
    MANIFEST,
    Manifest,
    Part,
    part_head,
    read_manifest,
    version_of,
)

__all__ = ["CompleteCheckpoints", "OwnPart", "named_part", "part_of_run"]

logger = logging.getLogger(__name__)


class OwnPart(msgspec.Struct, frozen=True):
    """A partition's part of a complete checkpoint: where its head lies, and what the manifest says of it."""

    head: Path
    part: Part


class CompleteCheckpoints:
    """Those of one folder that one partition can use.

    Parameters
    ----------
    folder : Path
        Of the job's checkpoints.
    job : Job
    partition : int
        Which one this is.
    """

    def __init__(self, folder: Path, job: Job, partition: int) -> None:
        self._folder, self._job, self._partition = folder, job, partition
        self._seen: dict[str, tuple[int, Manifest | None]] = {}  # folder's name: manifest's mtime, and itself

    def refresh(self) -> None:
        """Find out what is there now; a folder that cannot be read has nothing."""
        seen: dict[str, tuple[int, Manifest | None]] = {}
        try:
            folders = [each for each in self._folder.iterdir() if version_of(each) is not None]
        except FileNotFoundError:
            folders = []
        except OSError as error:
            logger.warning("checkpoints in %s are not seen: %s", self._folder, error.strerror or error)
            folders = []
        for folder in folders:
            try:
                stamp = (folder / MANIFEST).stat().st_mtime_ns
            except OSError:
                continue  # not finished, or pruned meanwhile
            before = self._seen.get(folder.name)
            if before is None or before[0] != stamp:
                before = (stamp, _manifest(folder))
            seen[folder.name] = before
        self._seen = seen

    def parts(self, ends: Ends) -> dict[SnapshotName, OwnPart]:
        """Return this partition's parts of the checkpoints in which exactly these tasks are ended."""
        found: dict[SnapshotName, OwnPart] = {}
        for name, (_, manifest) in self._seen.items():
            own = None if manifest is None else named_part(manifest, self._job, self._partition, ends)
            if manifest is not None and own is not None:
                head = part_head(self._folder / name, self._partition, manifest.partitions)
                found[own[0]] = OwnPart(head, own[1])
        return found


def named_part(manifest: Manifest, job: Job, partition: int, ends: Ends) -> tuple[SnapshotName, Part] | None:
    """Return a partition's part of a complete checkpoint, if the job's run can go on from it, and its name.

    No other state has the name: if the parts are of several eras, the newest of these began at that very version
    (PROTOCOL: section 6).
    """
    part = part_of_run(manifest, job, partition, ends)
    if part is None:
        return None
    era = max(each.era for each in manifest.parts) if job.plan.is_sync else part.era
    return (era, part.version), part


def part_of_run(manifest: Manifest, job: Job, partition: int, ends: Ends) -> Part | None:
    """Return a partition's part of a complete checkpoint, if the job's run can go on from it."""
    ours = (job.run, job.plan.hash, job.partitions, ends)
    if (manifest.run, manifest.plan_hash, manifest.partitions, manifest.ends) != ours:
        return None
    part = manifest.parts[partition]
    return part if part.era != NO_IDENTITY else None


def _manifest(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except (DamagedFile, OSError) as error:
        logger.warning("checkpoint %s is not used: %s", folder, error)
        return None

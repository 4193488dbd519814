"""The state that a job ends with: what its partitions, or the members of its group, have sealed, in the job's folder."""

from collections.abc import Sequence
from pathlib import Path

from edlz.services.protocol.ledger import Ledger
from edlz.services.protocol.messages import Job
from edlz.services.protocol.plan import Plan
from edlz.services.storage.blocks import DamagedFile
from edlz.services.storage.checkpoint_records import part_head
from edlz.services.storage.snapshots import snapshot_heads
from edlz.services.storage.state_head import StateHead, read_head
from edlz.services.storage.versions import list_versions

__all__ = ["are_full", "replicas_folder", "sealed_parts"]


def sealed_parts(job_folder: Path, job: Job, task_count: int = 0) -> tuple[Path, ...]:
    """Return the heads of the newest states in which every task of the job is, that of partition i at place i.

    They are one cut: their ledgers are full.

    Parameters
    ----------
    task_count : int
        The job has ended behind so many tasks; 0: its plan's.

    Returns
    -------
    tuple of Path
        Nothing if some partition has no such state, and no group has.
    """
    if members := _sealed_by_members(job_folder, job, task_count):
        return members
    heads = []
    for partition in range(job.partitions):
        found = [
            (head, place)
            for place in snapshot_heads(job_folder, partition, job.run)
            if (head := _read(place)) is not None and _is_full(head, job.plan, task_count)
        ]
        if not found:
            return ()
        heads.append(max(found, key=lambda one: (one[0].era, one[0].version, str(one[1])))[1])
    return tuple(heads)


def replicas_folder(job_folder: Path, run: str) -> Path:
    """Return where the members of an all-reduce job write states that are no checkpoints."""
    return job_folder / "replicas" / run


def _sealed_by_members(job_folder: Path, job: Job, task_count: int) -> tuple[Path, ...]:
    place = replicas_folder(job_folder, job.run)
    for info in list_versions(place):
        heads = tuple(part_head(info.folder, i, info.partitions) for i in range(info.partitions))
        if info.is_good and are_full(heads, job.plan, task_count):
            return heads
    return ()


def are_full(heads: Sequence[Path], plan: Plan, task_count: int = 0) -> bool:
    """Whether every task of a plan, or the first ones, is in each of these states."""
    return all((head := _read(place)) is not None and _is_full(head, plan, task_count) for place in heads)


def _read(place: Path) -> StateHead | None:
    try:
        return read_head(place)[0]
    except (DamagedFile, OSError):
        return None


def _is_full(head: StateHead, plan: Plan, task_count: int) -> bool:
    ledger = Ledger(head.ledger)
    is_full = ledger.finished.first_missing() >= (task_count or plan.task_count) and not ledger.marks
    return is_full and head.plan_hash == plan.hash

"""Which states of the job are saved, as far as a screen shows them, and since when."""

from collections.abc import Sequence
from typing import TypedDict

from edlz.services.master.core.master import MasterCore
from edlz.services.master.progress.extent import Extent
from edlz.services.protocol.messages import PartitionStatus

__all__ = ["SavedStates", "SavedView"]


class SavedView(TypedDict):
    """Fields of a `JobStatus`."""

    checkpoint: int | None
    checkpoint_age_s: float | None
    snapshot: int | None
    snapshot_age_s: float | None
    snapshot_ratio: float


class SavedStates:
    """The newest checkpoint and the newest snapshot, and when each was seen first.

    Parameters
    ----------
    now : float

    Attributes
    ----------
    checkpoint_s : float or None
        How long the newest checkpoint took, if its beginning was seen.
    """

    def __init__(self, now: float) -> None:
        self.checkpoint_s: float | None = None
        self._checkpoint: int | None = None
        self._snapshot: int | None = None
        self._checkpoint_at = self._snapshot_at = now
        self._snapshot_ratio = 0.0
        self._cut_since_s: float | None = None  # of the checkpoint under way

    @property
    def checkpoint_at(self) -> float | None:
        """When the newest checkpoint was seen first."""
        return None if self._checkpoint is None else self._checkpoint_at

    def sample(self, core: MasterCore, records: int, now: float) -> None:
        """Look at the job, of which so many records are done."""
        self._sample_checkpoint(core, now)
        snapshot = _newest_snapshot(core)
        if snapshot != self._snapshot:
            total = core.plan.size_of(Extent(core).task_count)[0]
            self._snapshot, self._snapshot_at = snapshot, now
            self._snapshot_ratio = records / total if total else 1.0

    def _sample_checkpoint(self, core: MasterCore, now: float) -> None:
        """See since when a checkpoint is under way, and when it is complete."""
        checkpoints = core.checkpoints
        if checkpoints.newest != self._checkpoint:
            self._checkpoint, self._checkpoint_at = checkpoints.newest, now
            self.checkpoint_s = None if self._cut_since_s is None else now - self._cut_since_s
            self._cut_since_s = None
        is_under_way = not checkpoints.is_idle or any(status.parts for status in core.partitions.statuses)
        if is_under_way and self._cut_since_s is None:
            self._cut_since_s = now
        elif not is_under_way:
            self._cut_since_s = None

    def view(self, now: float) -> SavedView:
        """Return what a screen shows of them."""
        at = self.checkpoint_at
        return SavedView(
            checkpoint=self._checkpoint,
            checkpoint_age_s=None if at is None else now - at,
            snapshot=self._snapshot,
            snapshot_age_s=None if self._snapshot is None else now - self._snapshot_at,
            snapshot_ratio=self._snapshot_ratio,
        )


def _newest_snapshot(core: MasterCore) -> int | None:
    """Return the newest version that all partitions could go on from (sync: the very same one)."""
    statuses: Sequence[PartitionStatus] = core.partitions.statuses
    names = [set(status.snapshots) for status in statuses]
    if len(names) < core.job.partitions:
        return None
    if core.plan.is_sync:
        names = [set.intersection(*names)]
    return min((max((version for _, version in each), default=0) for each in names), default=None)

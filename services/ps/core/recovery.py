"""Recovery of one partition: when it writes snapshots, and what it can go back to.

It writes one snapshot at a time, since each holds memory.  It goes back to snapshots, and to its parts of complete
checkpoints.  What could not be read is left out for the rest of this life, whatever the reason was: the master
chooses again from what is listed.
"""

from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import Identity, SnapshotName
from edlz.services.ps.core.instructions import Snapshots, Write
from edlz.services.ps.core.task_ends import TaskEnds

__all__ = ["RecoverySnapshots", "Targets"]


class RecoverySnapshots:
    """The recovery snapshots of one partition's life."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._is_being_written = False

    def restart(self, now: float) -> None:
        """Count the time from now on: the state has just come from the disk."""
        self._last_s = now

    def is_due(self, every_s: float, now: float) -> bool:
        return bool(every_s) and not self._is_being_written and now - self._last_s > every_s

    def take(self, store: Store, life: Identity, now: float) -> list[Write]:
        """Have the state as it is now written, unless one is being written: the next one is due soon."""
        self._last_s = now
        if self._is_being_written:
            return []
        self._is_being_written = True
        return [Write("snapshot", store.capture(life))]

    def on_over(self) -> None:
        """The one that was being written is, or never will be."""
        self._is_being_written = False


class Targets:
    """Of one partition's life.

    Parameters
    ----------
    snapshots : Snapshots
        Its disk.
    task_ends : TaskEnds
        Parts of a checkpoint count only if the same tasks are ended in it.
    """

    def __init__(self, snapshots: Snapshots, task_ends: TaskEnds) -> None:
        self._snapshots, self._task_ends = snapshots, task_ends
        self._unreadable: set[SnapshotName] = set()

    def snapshots(self) -> tuple[SnapshotName, ...]:
        return tuple(name for name in self._snapshots.names() if name not in self._unreadable)

    def checkpoints(self) -> tuple[SnapshotName, ...]:
        names = self._snapshots.checkpoints(self._task_ends.known)
        return tuple(name for name in names if name not in self._unreadable)

    def newest_first(self) -> list[SnapshotName]:
        """Return snapshots and parts, the newest version first."""
        names = {*self.snapshots(), *self.checkpoints()}
        return sorted(names, key=lambda name: (name[1], name[0]), reverse=True)

    def leave_out(self, name: SnapshotName) -> None:
        """It could not be read."""
        self._unreadable.add(name)

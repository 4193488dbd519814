"""What one partition can go back to: its snapshots, and its parts of complete checkpoints.

What could not be read is left out for the rest of this life, whatever the reason was: the master chooses again
from what is listed.
"""

from edlz.services.protocol.messages import SnapshotName
from edlz.services.ps.core.instructions import Snapshots
from edlz.services.ps.core.task_ends import TaskEnds

__all__ = ["Targets"]


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

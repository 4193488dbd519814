"""What the core of a partition asks its shell to do, and the disk that it may look at."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Ends, Identity, Job, PartitionStatus, SnapshotName
from edlz.services.storage.state import State

__all__ = ["Drop", "Exit", "Instruction", "Link", "Reply", "Report", "Snapshots", "Warn", "Write"]


class Snapshots(Protocol):
    """What lies on this partition's disk now."""

    def open(self, job: Job) -> None:
        """Find the folder of this run of the job; before that there are no snapshots."""
        ...

    def names(self) -> tuple[SnapshotName, ...]:
        """Return the names of all good snapshots."""
        ...

    def checkpoints(self, ends: Ends) -> tuple[SnapshotName, ...]:
        """Return the names of this partition's parts of complete checkpoints of the run that can be gone back to.

        Only those count in which exactly these tasks are ended.
        """
        ...

    def refresh(self) -> None:
        """Find out anew which checkpoints there are."""
        ...

    def load(self, name: SnapshotName, life: Identity, ends: Ends) -> State:
        """Read one; raises DataError if it is damaged, which also takes it off the list.

        A checkpoint's part becomes a snapshot of this life before it is read, where the disk allows that
        without copying.
        """
        ...

    def load_checkpoint(self, folder: str) -> State:
        """Read this partition's share of a checkpoint, whatever number of partitions wrote it.

        Raises DataError if it is damaged.
        """
        ...


class Reply(msgspec.Struct, frozen=True):  # one a request: made in a fifth of a dataclass's time
    """Answer a request; `to` is what it came with."""

    to: Hashable
    body: Message


@dataclass(frozen=True)
class Report:
    """Send this status to the master; its answer comes back through `on_answer`."""

    body: PartitionStatus


@dataclass(frozen=True)
class Write:
    """Make a state durable (temporary file, fsync, rename, fsync of the folder), then `on_written`.

    A checkpoint's part goes into the folder of `version`.
    """

    kind: Literal["base", "snapshot", "seal", "checkpoint"]
    state: State
    number: int = 0
    version: int = 0


@dataclass(frozen=True)
class Link:
    """Take a snapshot of an older life into this life's folder."""

    name: SnapshotName


@dataclass(frozen=True)
class Drop:
    """Unlink a snapshot from this life's and older lives' folders; never the base."""

    name: SnapshotName


@dataclass(frozen=True)
class Exit:
    """Leave: by orders (code 0) or because something has to begin again from the disk."""

    reason: str
    code: int = 0


@dataclass(frozen=True)
class Warn:
    """Tell the operator of something that goes on without."""

    text: str


Instruction = Reply | Report | Write | Link | Drop | Exit | Warn

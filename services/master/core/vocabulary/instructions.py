"""What the core of the master asks its shell to do."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from edlz.services.master.core.vocabulary.records import Added, PredictedTask
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Ends, Identity, PartInfo, PartitionAddress, SnapshotName

__all__ = [
    "Announce",
    "DropCheckpoint",
    "DropParts",
    "Instruction",
    "Journal",
    "Leave",
    "PublishPredictions",
    "Reply",
    "TakeDigest",
    "WriteManifest",
    "WriteState",
]


@dataclass(frozen=True)
class Reply:
    """Answer a request; `to` is what it came with."""

    to: Hashable
    body: Message


@dataclass(frozen=True)
class Journal:
    """One durable transaction, checked against the stored term, before any later instruction.

    `added`: of facts that only become longer, what is new.
    """

    fields: dict[str, object]
    added: dict[str, Added] = field(default_factory=dict)


@dataclass(frozen=True)
class Announce:
    """Something an operator or a screen should hear of; `level` is that of the logging module."""

    kind: str
    text: str
    level: int = 20


@dataclass(frozen=True)
class TakeDigest:
    """Read the sealed parameters of these partitions, then tell of it (`DigestRead`); what was read before is of no use."""

    partitions: tuple[PartitionAddress, ...]

    @property
    def lives(self) -> tuple[Identity, ...]:
        """Those of the partitions."""
        return tuple(partition.incarnation for partition in self.partitions)


@dataclass(frozen=True)
class WriteManifest:
    """Make a checkpoint valid whose parts all partitions have written, then tell of it (`ManifestWritten`).

    Of the versions before, those in `needed` may have to be read again.
    """

    version: int
    number: int
    parts: tuple[PartInfo, ...]
    ends: Ends = ()
    needed: tuple[int, ...] = ()


@dataclass(frozen=True)
class WriteState:
    """Make a state valid that is no checkpoint, of which all members of a group have written their parts, then tell of it
    (`StateWritten`).
    """

    name: SnapshotName
    parts: tuple[PartInfo, ...]
    number: int


@dataclass(frozen=True)
class DropParts:
    """Remove what some partitions have written of a checkpoint that others could not write."""

    version: int


@dataclass(frozen=True)
class PublishPredictions:
    """Say in the folder of the predictions that they are whole, then tell of it (`Published`).

    `skipped`: tasks that are left out.
    """

    version: int
    tasks: tuple[PredictedTask, ...]
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True)
class DropCheckpoint:
    """Remove a complete checkpoint: it was kept for callbacks, which refer to another one now."""

    version: int


@dataclass(frozen=True)
class Leave:
    """The job is over, and whoever could be told has heard of it: the master is not needed any more."""


Instruction = (
    Reply
    | Journal
    | Announce
    | TakeDigest
    | WriteManifest
    | WriteState
    | DropParts
    | PublishPredictions
    | DropCheckpoint
    | Leave
)

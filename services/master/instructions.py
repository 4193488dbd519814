"""What the core of the master asks its shell to do."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from edlz.services.master.entries import Added, PredictedTask
from edlz.services.messages import Ends, Identity, PartInfo, PartitionAddress
from edlz.services.records import Message

__all__ = [
    "Announce",
    "DropCheckpoint",
    "DropParts",
    "Exit",
    "Instruction",
    "Journal",
    "PublishPredictions",
    "Reply",
    "Retire",
    "RetireServer",
    "TakeDigest",
    "WriteManifest",
]


@dataclass(frozen=True)
class Reply:
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
    """Read the sealed parameters of these partitions and call `on_digest`; what was read before is of no use."""

    partitions: tuple[PartitionAddress, ...]

    @property
    def lives(self) -> tuple[Identity, ...]:
        """Those of the partitions."""
        return tuple(partition.incarnation for partition in self.partitions)


@dataclass(frozen=True)
class WriteManifest:
    """Make a checkpoint valid whose parts all partitions have written, then `on_manifest`.

    Of the versions before, those in `needed` may have to be read again.
    """

    version: int
    number: int
    parts: tuple[PartInfo, ...]
    ends: Ends = ()
    needed: tuple[int, ...] = ()


@dataclass(frozen=True)
class DropParts:
    """Remove what some partitions have written of a checkpoint that others could not write."""

    version: int


@dataclass(frozen=True)
class PublishPredictions:
    """Say in the folder of the predictions that they are whole, then `on_published`.

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
class Retire:
    """A worker runs, but does nothing: have another one started in its place.

    `is_unreachable`: its node does not answer, so that it was taken away.
    """

    worker: str
    reason: str
    is_unreachable: bool = False


@dataclass(frozen=True)
class RetireServer:
    """A parameter server runs, as far as its launcher knows, but says nothing: have it started anew.

    `is_unreachable`: as of `Retire`.
    """

    index: int
    reason: str
    is_unreachable: bool = False


@dataclass(frozen=True)
class Exit:
    reason: str
    code: int


Instruction = (
    Reply
    | Journal
    | Announce
    | TakeDigest
    | WriteManifest
    | DropParts
    | PublishPredictions
    | DropCheckpoint
    | Retire
    | RetireServer
    | Exit
)

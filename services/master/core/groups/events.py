"""What `Rendezvous` is told, and what it asks for."""

from collections.abc import Collection
from dataclasses import dataclass

from edlz.services.protocol.messages import (
    FailedTask,
    Identity,
    Member,
    MemberStatus,
    SnapshotName,
    WrittenPart,
)

__all__ = [
    "Complete",
    "Durable",
    "Evaluate",
    "Evaluated",
    "Evict",
    "GiveUpTask",
    "Heard",
    "Input",
    "Instruction",
    "Lost",
    "PartFailed",
    "Tell",
    "Tick",
    "Unsaved",
    "WriteManifest",
]


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Heard:
    """A worker's newest status, under this master's term or an older one's.  A spare is no member until it is called."""

    member: Member
    status: MemberStatus
    is_spare: bool = False


@dataclass(frozen=True)
class Lost:
    """A life of a worker has ended: an exit report, or somebody has given it up.

    Attributes
    ----------
    incarnation : Identity
    active : collection of Identity
        Who are no spares now, among them perhaps one that is called in its place.
    """

    incarnation: Identity
    active: Collection[Identity] = ()


@dataclass(frozen=True)
class Durable:
    """All parts of a state are durable, and its manifest says so."""

    name: SnapshotName
    is_checkpoint: bool = False


@dataclass(frozen=True)
class Unsaved:
    """The manifest of a state that is no checkpoint could not be written."""

    name: SnapshotName


@dataclass(frozen=True)
class Evaluated:
    """The reports of all tasks of a state's evaluation are counted, and what follows from them is decided."""

    name: SnapshotName


Input = Tick | Heard | Lost | Durable | Unsaved | Evaluated


@dataclass(frozen=True)
class Tell:
    """Something that an operator should hear of."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class Evict:
    """A worker is told to stop, and another one takes its place, if one may."""

    incarnation: Identity
    reason: str
    is_hung: bool = False  # it shows where, before it ends
    is_replaced: bool = True


@dataclass(frozen=True)
class GiveUpTask:
    """A task has failed in the hands of several members: journal that it ends here, or fail the job.

    Where it ends is told to the members only when `Rendezvous.ends` has it.
    """

    task: int
    index: int
    error: str
    attempts: tuple[
        tuple[str, FailedTask], ...
    ] = ()  # each with its worker, as far as members told more of them


@dataclass(frozen=True)
class WriteManifest:
    """All `count` members have written their parts of a state: say so in a manifest, then tell of it (`Durable`, `Unsaved`)."""

    name: SnapshotName
    count: int
    is_checkpoint: bool = False
    parts: tuple[WrittenPart, ...] = ()  # in the order of ranks


@dataclass(frozen=True)
class PartFailed:
    """A member could not write its part of a state."""

    incarnation: Identity
    part: WrittenPart


@dataclass(frozen=True)
class Evaluate:
    """The members hold this state until it is evaluated (`Evaluated`); what is open of another one is dropped."""

    name: SnapshotName


@dataclass(frozen=True)
class Complete:
    """Every member of one generation has made its part of the full ledger's state durable."""

    name: SnapshotName
    members: int


Instruction = Tell | Evict | GiveUpTask | WriteManifest | PartFailed | Evaluate | Complete

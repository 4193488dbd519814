"""What the core of a member asks its shell to do."""

from collections.abc import Hashable
from dataclasses import dataclass

from edlz.services.parameters.mean_step import NextValues
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Identity, Member, Reduce, SnapshotName
from edlz.services.storage.state import State
from edlz.services.worker.core.groups.incoming_state import IncomingState

__all__ = [
    "Abandon",
    "Advance",
    "AskMember",
    "AssembleState",
    "Compute",
    "DigestState",
    "Instruction",
    "Load",
    "Proceed",
    "Reply",
    "Slot",
    "StageOwn",
    "Tell",
    "WritePart",
]


@dataclass(frozen=True)
class Tell:
    """Send the master a status soon: something has changed that it waits for."""


@dataclass(frozen=True)
class Slot:
    """A minibatch to compute.  The task ends before minibatch `end_at`, if there is one."""

    slot: int
    task: int
    index: int
    end_at: int | None = None


@dataclass(frozen=True)
class Compute:
    """Compute these slots on the replica as it is, in this order: a `SlotComputed` for each, then a `BlockComputed`.

    `block`, `count`: the slots that it is about, of how many; what is computed of them is added up (`NodeSums`).
    `learning_rate`: what callbacks have set; None if the model's own holds.  `is_slow`: say before each that it comes next
    (`SlotBegins`), and wait for a word (`Proceed`).
    """

    attempt: int
    version: int
    slots: tuple[Slot, ...]
    block: range
    count: int
    learning_rate: float | None = None
    is_slow: bool = False


@dataclass(frozen=True)
class Proceed:
    """Compute the slot of this task, which comes next; perhaps it is computed already."""

    attempt: int
    task: int


@dataclass(frozen=True)
class Advance:
    """Work out the values of the next version (`Advanced`), and let nothing wait for it.

    It changes the vectors of the state in place.  What was to be done with the state before is done before: see `WritePart`.
    """

    values: NextValues


@dataclass(frozen=True)
class Abandon:
    """What is computed and what other members were asked is of no use any more."""


@dataclass(frozen=True)
class AskMember:
    """Ask another member, again and again until it answers (`Answered`).

    `again`: what it is asked with while it is reached as before, so that `body` has surely come, or is on its way.
    """

    member: Member
    key: Hashable
    body: Message
    again: Message | None = None


@dataclass(frozen=True)
class StageOwn:
    """Take in a part that this member owes itself (a `Request` to `OWN`), when others have had their turn."""

    part: Reduce


@dataclass(frozen=True)
class Reply:
    to: Hashable
    body: Message


@dataclass(frozen=True)
class DigestState:
    """Work out the digest of a state (`Digested`), and let nothing wait for it; steps may change the state meanwhile."""

    key: Hashable
    state: State


@dataclass(frozen=True)
class AssembleState:
    """See whether a state that has come is the one that was cut (`Assembled`), and let nothing wait for it."""

    attempt: int
    incoming: IncomingState


@dataclass(frozen=True)
class Load:
    """Read a whole durable state (`Loaded`)."""

    name: SnapshotName


@dataclass(frozen=True)
class WritePart:
    """Write this member's slices of its state as a partition's, then tell of it (`PartWritten`).

    `state`: steps change its vectors: they are copied before the next `Advance` is carried out.
    `generation`: in which they are written; the state's own may be an earlier one.  `is_checkpoint`: among the checkpoints,
    else among what the job goes on from if all members are lost.  `is_last`: the job cannot end without it.
    """

    generation: Identity
    state: State
    is_checkpoint: bool = False
    is_last: bool = False


Instruction = (
    Tell
    | Compute
    | Proceed
    | Advance
    | Abandon
    | AskMember
    | StageOwn
    | Reply
    | DigestState
    | AssembleState
    | Load
    | WritePart
)

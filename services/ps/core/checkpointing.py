"""The core that takes one partition's parts of checkpoints (PROTOCOL: section 8).

Theory of operation.  A part is the state at a cut, at which all partitions have the same ledger.  In
synchronous mode every version is one: a partition cuts by itself at multiples of `checkpoint_steps`, and out
of turn at a version that the master's order fixes on one partition and the workers' pushes carry to the
others.  In asynchronous mode the master has the partition come *near* (it says often where it stands),
*freeze* (pushes wait) and *level*: pushes are taken up to given marks, and when they are reached the
partition cuts and takes all pushes again.  The shell writes the part while training goes on; what has come
of it is reported until the master says how the checkpoint has ended.
"""

from collections.abc import Callable
from enum import Enum

from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import (
    CheckpointOrder,
    CheckpointPart,
    Identity,
    PartInfo,
    PartitionOrders,
)
from edlz.services.ps.core.asynchronous import Asynchronous
from edlz.services.ps.core.checkpoint_parts import CheckpointParts
from edlz.services.ps.core.instructions import Instruction, Write
from edlz.services.ps.core.synchronous import Synchronous
from edlz.services.transitions import Transitions

__all__ = ["STEPS", "Checkpointing", "CutPhase"]


class CutPhase(Enum):
    """Async: how far a partition is with the cut for a checkpoint."""

    NONE = "none"  # no checkpoint is being cut
    NEAR = "near"  # one is about to be: the partition says often where it stands
    FROZEN = "frozen"  # pushes wait
    LEVELLING = "levelling"  # pushes are taken up to the marks that all partitions are to have


# A checkpoint may be given up in any phase, and the next one be wanted before that is heard of.
STEPS = Transitions(
    "a cut",
    CutPhase.NONE,
    {
        CutPhase.NONE: {CutPhase.NEAR},
        CutPhase.NEAR: {CutPhase.FROZEN, CutPhase.NEAR, CutPhase.NONE},
        CutPhase.FROZEN: {CutPhase.LEVELLING, CutPhase.NEAR, CutPhase.NONE},
        CutPhase.LEVELLING: {CutPhase.LEVELLING, CutPhase.NEAR, CutPhase.NONE},
    },
)


class Checkpointing:
    """When one partition cuts, and what it has to report of its parts.

    `life` is the first part of a snapshot's name everywhere here: what has been cut in another life or era
    does not count in this one.

    Parameters
    ----------
    tell : callable (now) -> list of Instruction
        Tells the master at once how things stand.

    Attributes
    ----------
    phase : CutPhase
        Async.
    """

    def __init__(self, tell: Callable[[float], list[Instruction]]) -> None:
        self._tell = tell
        self._parts = CheckpointParts()
        self.phase = CutPhase.NONE
        self._order: CheckpointOrder | None = None  # async: what was asked last for the cut under way
        self._done = 0  # async: the newest checkpoint that has been cut
        self._ordered = 0  # sync: the last checkpoint that was ordered in this era

    @property
    def reported(self) -> tuple[CheckpointPart, ...]:
        """What the master has to know of this partition's parts."""
        return self._parts.reported

    @property
    def near(self) -> int:
        """Async: the checkpoint that is about to be cut; 0 if there is none."""
        return 0 if self._order is None else self._order.number

    def _enter(self, phase: CutPhase, order: CheckpointOrder | None = None) -> None:
        STEPS.check(self.phase, phase)
        self.phase, self._order = phase, order

    # -- orders

    def obey(
        self,
        orders: PartitionOrders,
        exchanges: Synchronous | Asynchronous,
        life: Identity,
        *,
        is_sealed: bool,
        now: float,
    ) -> list[Instruction]:
        """Do what the master wants for the checkpoint under way; forget those that have ended."""
        self._parts.forget(orders.checkpointed)
        order = orders.checkpoint
        if isinstance(exchanges, Asynchronous):
            if order is None or order.number <= orders.checkpointed:
                if self.phase is not CutPhase.NONE:
                    self._enter(CutPhase.NONE)
                return list(exchanges.lift(now))
            return self._come_level(order, exchanges, life, now)
        if order is None:
            return []
        # All partitions stand at one version, and no push would spread the word.
        if is_sealed or (order.version and order.version == exchanges.store.version):
            return self._cut_version(exchanges.store, life)
        if order.number > self._ordered:
            self._ordered = order.number
            # Pushes of this version may be on their way without it; every push of the next one carries it.
            exchanges.checkpoint_at = exchanges.store.version + 2
        return []

    def rewind(self, version: int) -> None:
        """Sync: all partitions have gone back to this version, into another era."""
        self._ordered = 0
        self._parts.rewind(version)

    def _come_level(
        self, order: CheckpointOrder, exchanges: Asynchronous, life: Identity, now: float
    ) -> list[Instruction]:
        if order.number <= self._done:  # it waits for the others, and for the disk
            return []
        if order.number > self.near:  # an answer to each status, and often: a cut should not take long
            self._enter(CutPhase.NEAR, order)
            return self._tell(now)
        if order.phase == "near":
            return []
        if order.phase == "freeze":
            if not exchanges.freeze(order.number):
                return []
            self._enter(CutPhase.FROZEN, order)
            return self._tell(now)
        assert order.marks is not None
        if self.phase is CutPhase.NEAR:  # its marks would be those of other pushes
            return []
        self._enter(CutPhase.LEVELLING, order)
        replies = exchanges.level(order.number, order.marks)
        return [*replies, *self.on_push(exchanges, life, now)]

    # -- training

    def on_push(self, exchanges: Asynchronous, life: Identity, now: float) -> list[Instruction]:
        """Async: if the ledger is what the checkpoint wants, cut, and take pushes again at once."""
        order = self._order
        if self.phase is not CutPhase.LEVELLING or order is None or not exchanges.is_level:
            return []
        self._enter(CutPhase.NONE)
        self._done = order.number
        # Before anything more is applied.
        if self._parts.is_full:
            error = "the disk is slower than checkpoints come"
            cut = self._report(order.number, order.version, None, error, now)
        else:
            cut = [self._cut(exchanges.store, life, order.number, order.version)]
        return [*cut, *exchanges.lift(now)]

    def on_commit(self, exchanges: Synchronous, life: Identity, every: int) -> list[Instruction]:
        """Sync: a step is in; cut if a checkpoint is due, each `every` versions (0: never) or by order."""
        version = exchanges.store.version
        is_due = bool(every) and version % every == 0
        if not is_due and exchanges.checkpoint_at != version:
            return []
        return self._cut_version(exchanges.store, life)

    def _cut_version(self, store: Store, life: Identity) -> list[Instruction]:
        """Sync: cut here, unless that has been done; when the disk is behind, a later version will be whole."""
        if self._parts.is_full or not self._parts.is_new(life, store.version):
            return []
        return [self._cut(store, life, store.version, store.version)]

    def _cut(self, store: Store, life: Identity, number: int, version: int) -> Write:
        """Have the state as it is now written as a part of a checkpoint."""
        self._parts.begin(life, number)
        return Write("checkpoint", store.capture(life), number, version)

    # -- parts

    def on_written(
        self, write: Write, info: PartInfo | None, error: str, *, is_wanted: bool, now: float
    ) -> list[Instruction]:
        """A part is durable, or it could not be written: then this checkpoint stays incomplete."""
        self._parts.end(write.state.era, write.number)
        return self._report(write.number, write.version, info, error, now) if is_wanted else []

    def _report(
        self, number: int, version: int, info: PartInfo | None, error: str, now: float
    ) -> list[Instruction]:
        return self._tell(now) if self._parts.report(number, version, info, error) else []

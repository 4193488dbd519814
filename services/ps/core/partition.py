"""The core of a parameter server: one partition, and the protocol around its state.

Theory of operation.  A partition is *joining* until the master has named it (an incarnation), *bare*
until a worker has initialised it or its disk holds a snapshot, in synchronous mode *unrestored* until
the master has given it an era, then *serving*, and in the end *sealed*.  It applies a minibatch only if
its ledger says that this one comes next, so a repeated, late or foreign push changes nothing.  How
gradients are taken in is `Synchronous`' and `Asynchronous`' affair, checkpoints are `Checkpointing`'; here are the
partition's lives, its disk and its line to the master; what it stands at is `Standing`.  PROTOCOL: sections 3 to 8.

`feed` takes an input and the time and returns instructions; nothing here reads a clock, a socket or a file,
except that `Snapshots` lists and loads what this partition has written.
"""

from collections.abc import Callable, Hashable

from edlz.services.errors import EdlzError, RemoteProtocolError
from edlz.services.parameters.beginning import begun_from, difference
from edlz.services.parameters.store import Store, read
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    Exchange,
    Granted,
    Identity,
    Initialise,
    Initialised,
    NewestPull,
    PartitionOrders,
    PartitionStatus,
    PartitionTelemetry,
    ReadTables,
    ReadVector,
    Refused,
    SnapshotName,
)
from edlz.services.ps.core.answers import check_joining, check_orders, misdirected
from edlz.services.ps.core.asynchronous import Asynchronous
from edlz.services.ps.core.checkpointing import Checkpointing, CutPhase
from edlz.services.ps.core.heartbeat import NEAR_HEARTBEAT_S
from edlz.services.ps.core.initialisation import Initialisation
from edlz.services.ps.core.inputs import (
    Answered,
    Input,
    LeaveWanted,
    NoRoom,
    PartFailed,
    PartWritten,
    RareInput,
    Request,
    SnapshotOver,
    Tick,
    Written,
)
from edlz.services.ps.core.instructions import (
    Drop,
    Exit,
    Instruction,
    Link,
    Reply,
    Report,
    Snapshots,
    Warn,
    Write,
)
from edlz.services.ps.core.leaving import Leaving, left
from edlz.services.ps.core.standing import STEPS, Condition, Standing
from edlz.services.ps.core.synchronous import Synchronous

__all__ = ["Partition"]

TICK_S = 0.1
RETRY_S = 1.0  # on a full disk


class Partition(Standing):
    """One slice of the parameters.

    Parameters
    ----------
    index : int
        Which partition this is.
    boot : int
        A random number that tells this process from the ones before it.
    endpoint : str
        Where workers reach it.
    snapshots : Snapshots
        Its disk.
    telemetry : callable, optional
        Figures for display.
    """

    def __init__(
        self,
        index: int,
        boot: int,
        endpoint: str,
        snapshots: Snapshots,
        telemetry: Callable[[], PartitionTelemetry] = PartitionTelemetry,
    ) -> None:
        super().__init__(snapshots)
        self.index, self.boot, self.endpoint = index, boot, endpoint
        self._telemetry = telemetry
        self.term = 0
        self._obeyed = 0  # number of the last orders obeyed in this term
        self._ledger_known: tuple[object, ...] = ()  # as what the master has heard the ledger in full
        self._now_s = 0.0  # of the event in hand
        self._committed: list[Instruction] = []  # what the steps of the event in hand ask for
        self._initialisation = Initialisation(index)
        self._begins_again_s: float | None = None  # when the base that did not fit is written again
        self._checkpointing = Checkpointing(self._status)
        self._newest_checkpoint = -1  # the last one that the master has told of
        self._leaving = Leaving()

    # -- inputs

    def feed(self, event: Input, now: float) -> list[Instruction]:
        """Take an input; return what is to be done, in this order.  Answers to requests may come later.

        Raises
        ------
        RemoteProtocolError
            If a request or an answer does not fit this partition; nothing has changed.
        """
        if isinstance(event, Request):
            return self._on_request(event.to, event.body, now)
        if isinstance(event, Tick):
            return self._on_tick(now)
        before = self.condition
        out = self._on_rare(event, now)
        if self.condition is not before:
            STEPS.check(before, self.condition)
        return out

    def _on_rare(self, event: RareInput, now: float) -> list[Instruction]:
        """Take an input that may change where this partition stands."""
        match event:
            case Answered(asked, answer):
                return self._on_answer(asked, answer, now)
            case Written(write):
                return self._on_written(write, now)
            case SnapshotOver():
                return self._on_snapshot_over()
            case NoRoom(write):
                return self._on_no_room(write, now)
            case PartWritten(write, info):
                return self._checkpointing.on_written(
                    write, info, "", is_wanted=self.is_wanted(write), now=now
                )
            case PartFailed(write, error):
                return self._checkpointing.on_written(
                    write, None, error, is_wanted=self.is_wanted(write), now=now
                )
            case LeaveWanted(grace_s):
                return self._leave(grace_s, now)

    # -- time

    @property
    def tick_s(self) -> float:
        """How often the time should be told."""
        return NEAR_HEARTBEAT_S if self._checkpointing.near else TICK_S

    def _on_tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = [*self._leaving.on_tick(now)]
        if self._leaving.is_forsaken(now):
            out += self._save_own(now)
        if self.condition is Condition.SERVING and not self.plan.is_sync and self._is_snapshot_due(now):
            out += self._snapshot(now)
        if self._begins_again_s is not None and now >= self._begins_again_s:
            out += self._begin_again()
        if self._asynchronous is not None:
            out += self._asynchronous.refuse_waiting(now)
        if self._heartbeat.is_due(now):
            out += self._status(now)
        return out

    def _status(self, now: float) -> list[Instruction]:
        version = self.store.version if self.store else 0
        is_near, is_leaving = bool(self._checkpointing.near), self._leaving.is_under_way
        self._heartbeat.note_sent(version, now, is_near=is_near, is_leaving=is_leaving)
        ledger = self.store.ledger if self.store else None
        frozen = self._asynchronous.frozen if self._asynchronous else 0
        is_known = self._ledger_known == (self.term, self.incarnation, self.era, frozen)
        return [
            Report(
                PartitionStatus(
                    partition=self.index,
                    boot=self.boot,
                    incarnation=self.incarnation,
                    seq=self._heartbeat.count,
                    term=self.term,
                    endpoint=self.endpoint,
                    era=self.era,
                    version=version,
                    has_base=self.store is not None,
                    ledger=None if ledger is None or is_known else ledger.record(),
                    finished_tasks=len(ledger.finished) if ledger else 0,
                    minibatches=ledger.minibatches if ledger else 0,
                    open_minibatches=sum(ledger.marks.values()) if ledger else 0,
                    snapshots=self._targets.snapshots() if self.store else (),
                    is_sealed=self.is_sealed,
                    telemetry=self._telemetry(),
                    near=self._checkpointing.near,
                    frozen=frozen,
                    parts=self._checkpointing.reported,
                    recount=self._recount(),
                    closed=self._closed_tasks,
                    run=self.job.run if self.job is not None else "",
                    checkpoints=self._targets.checkpoints() if self.store else (),
                    is_leaving=is_leaving,
                    losses=self.store.losses if self.store else LossSum(),
                    can_wait=self._heartbeat.can_wait and not is_leaving,
                )
            )
        ]

    # -- master

    def _on_answer(self, asked: PartitionStatus, answer: Message, now: float) -> list[Instruction]:
        if not isinstance(answer, Granted | PartitionOrders) or answer.term < self.term:
            return []
        if answer.term > self.term:
            self.term, self._obeyed = answer.term, 0
            self._snapshots.refresh()  # the master before may not have told of its last checkpoint
            return self._status(now)
        if isinstance(answer, Granted):
            return self._on_granted(answer, now)
        if answer.number < self._obeyed or answer.incarnation != self.incarnation:
            return [Exit("another process has taken this partition's place")] if answer.stop else []
        check_orders(answer, is_sync=self.plan.is_sync)
        self._obeyed = answer.number  # one that was overtaken must not undo what this one asks for
        if asked.ledger is not None:  # this very ledger has been heard, not merely sent
            self._ledger_known = (asked.term, asked.incarnation, asked.era, asked.frozen)
        out = self._obey(answer, now)
        if self._heartbeat.can_wait and self._heartbeat.is_due(now):  # the answer to the next one may be held
            out += self._status(now)
        return out

    def _on_granted(self, granted: Granted, now: float) -> list[Instruction]:
        if self.incarnation is not None or granted.incarnation is None:
            return []
        job = check_joining(granted, self.index)
        self._take_job(job)
        self._snapshots.open(job)
        self._task_ends.hear(granted.ends)
        name, out = self._load_newest(granted.incarnation)
        try:
            if name is None and job.begins_from:
                out.append(self._begin_from_checkpoint())
        except EdlzError as error:
            return [Exit(f"{error.message}; joining again without it", 1)]
        self.incarnation = granted.incarnation
        self._recovery.restart(now)
        if name is not None and not self.plan.is_sync:
            out += self._kept(name, now)
        return [*out, *self._status(now)]

    def _begin_from_checkpoint(self) -> Write:
        assert self.job is not None
        found = self._snapshots.load_checkpoint(self.job.begins_from)
        return self._initialisation.take(begun_from(found, self.plan))

    def _begin_again(self) -> list[Instruction]:
        """Take the state before training anew, if it is a checkpoint's; a worker's comes by itself."""
        self._begins_again_s = None
        if self.job is None or not self.job.begins_from or self.condition is not Condition.BARE:
            return []
        try:
            return [self._begin_from_checkpoint()]
        except EdlzError as error:
            return [Exit(f"{error.message}; joining again without it", 1)]

    def _obey(self, orders: PartitionOrders, now: float) -> list[Instruction]:
        if orders.stop:
            return [Exit("the master said stop")]
        version = self.store.version if self.store is not None else 0
        if gone := self._leaving.on_orders(orders, self.era, version, now):
            return [*gone]
        self._heartbeat.hurry(now, hurries=orders.hurries)
        is_closing = self._task_ends.obey(orders)
        self._look_at_disk(orders, now)
        if self._is_left_with_nothing:
            return [Exit("what it could go back to is there no more; joining again", 1)]
        store = self.store
        if store is None:
            return []
        is_newer = orders.era is not None and (self.era is None or orders.era > self.era)
        if orders.restore is not None and orders.era is not None and is_newer:
            return self._restore(orders.restore, orders.era, now)
        if self.plan.is_sync and orders.era != self.era:
            return []
        return self._go_on(orders, store, now, is_closing=is_closing)

    def _look_at_disk(self, orders: PartitionOrders, now: float) -> None:
        """Find out which checkpoints there are, when the master knows of another one or goes back."""
        is_going_back = self.plan.is_sync and orders.era != self.era
        if is_going_back or orders.newest_checkpoint != self._newest_checkpoint:
            if orders.newest_checkpoint != self._newest_checkpoint:
                self._heartbeat.send_at_once(now)  # should a partition be lost now, the others are to list it
            self._newest_checkpoint = orders.newest_checkpoint
            self._snapshots.refresh()

    def _go_on(
        self, orders: PartitionOrders, store: Store, now: float, *, is_closing: bool
    ) -> list[Instruction]:
        """Do what the master wants of the state in hand, in its era."""
        self._heartbeat.set_fence(orders.fence, store.ledger.finished.first_missing(), now)
        task_count = orders.task_count or self.plan.task_count
        out = self._dropped_below(orders.discard_below)
        if self.condition is not Condition.UNRESTORED:
            assert self._exchanges is not None
            if self._exchanges.task_count != task_count:
                self._now_s = now
                replies = self._exchanges.end_behind(task_count)
                out += [*self._committed, *replies]
                self._committed = []
            out += self._checkpointing.obey(
                orders, self._exchanges, self._snapshot_era, is_sealed=self.is_sealed, now=now
            )
            if store.version == orders.snapshot_at and not self._is_saved(store):
                out += self._snapshot(now)
        if is_closing:  # the master waits for where this partition stands
            out += self._status(now)
        is_full = store.ledger.finished.first_missing() >= task_count
        if orders.seal and is_full and self.condition is Condition.SERVING and not self._is_sealing:
            self._is_sealing = True
            out.append(Write("seal", store.capture(self._snapshot_era)))
        return out

    def _restore(self, name: SnapshotName, era: Identity, now: float) -> list[Instruction]:
        assert self.incarnation is not None
        if name not in self._targets.newest_first():
            return self._stay_out(f"snapshot {name} is gone", now)
        try:
            self._load(name, self.incarnation)
        except EdlzError as error:
            return self._stay_out(error.message, now)
        self.era = era
        self._recovery.restart(now)
        self._checkpointing.rewind(self.store.version if self.store else 0)
        newer = [other for other in self._snapshots.names() if other[1] > name[1]]  # are made anew
        return [*self._kept(name, now), *(Drop(other) for other in newer), *self._status(now)]

    def _stay_out(self, reason: str, now: float) -> list[Instruction]:
        """Not in the new era: the master hears of what there is, and names another one."""
        out: list[Instruction] = [Warn(f"{reason}; the master chooses another one")]
        if self.store is None:  # it was found damaged when it had taken the former state's place
            assert self.incarnation is not None
            name, warnings = self._load_newest(self.incarnation)
            out += warnings
            if name is None:
                return [*out, Exit("nothing that it could go on from can be read; joining again", 1)]
            self.era, self._ledger_known = None, ()
        return [*out, *self._status(now)]

    def _kept(self, name: SnapshotName, now: float) -> list[Instruction]:
        """Have what was loaded in this life's own folder."""
        if name in self._snapshots.names():
            return [Link(name)]
        # A checkpoint that could not be linked may be pruned: the same state as a snapshot takes its place.
        return self._snapshot(now)

    # -- leaving

    def _leave(self, grace_s: float, now: float) -> list[Instruction]:
        """Have the state saved, then go."""
        if self._leaving.is_under_way:
            return [*left("a second time")]
        if self.condition not in (Condition.SERVING, Condition.SEALED) or not grace_s:
            return [*left("at once")]
        self._leaving.begin(grace_s, now, is_sync=self.plan.is_sync)
        if self._synchronous is not None:
            # Values of this version are with workers: the step that is computed from them is taken here as elsewhere.
            self._synchronous.last_version = self._synchronous.store.version + 1
            return self._status(now)
        return [*self._status(now), *self._save_own(now)]

    def _save_own(self, now: float) -> list[Instruction]:
        """Write what was taken last, and go when it is durable."""
        assert self.store is not None
        if self._asynchronous is not None:
            self.store.flush()
        if self._is_sealing:  # and when that is written, all is
            return []
        if self._is_saved(self.store):
            alone = "the master does not answer; " if self._leaving.is_forsaken(now) else ""
            return [*left(f"{alone}v{self.store.version} is saved")]
        return self._snapshot(now)

    # -- snapshots

    def _on_snapshot_over(self) -> list[Instruction]:
        self._recovery.on_over()
        return [*left("its state could not be written")] if self._leaving.is_under_way else []

    def _on_no_room(self, write: Write, now: float) -> list[Instruction]:
        if write.kind == "seal":  # by the master's next orders
            self._is_sealing = False
            return []
        self._begins_again_s = now + RETRY_S  # from a checkpoint; or else by a worker's next initial values
        return [*self._initialisation.on_no_room()]

    def is_wanted(self, write: Write) -> bool:
        """Asked before the rename: a file of an era left meanwhile is thrown away."""
        if write.kind == "base" or not self.plan.is_sync:
            return True
        return write.state.era == self.era

    def _on_written(self, write: Write, now: float) -> list[Instruction]:
        if write.kind == "snapshot":
            self._recovery.on_over()
        out: list[Instruction] = []
        if write.kind == "base":
            assert self.incarnation is not None
            self._load(write.state.name, self.incarnation)
            out += self._initialisation.on_written()
        elif not self.is_wanted(write):
            return []
        elif write.kind == "seal":
            self.is_sealed, self._is_sealing = True, False
        if write.kind != "base" and not self.plan.is_sync:
            out += self._dropped_below(write.state.version)
            out += self._save_own(now) if self._leaving.is_under_way else []
        return out + self._status(now)

    # -- requests

    def _on_request(self, to: Hashable, body: Message, now: float) -> list[Instruction]:
        job, exchanges = self.job, self._exchanges
        is_meant = isinstance(body, Exchange) and job is not None and body.run == job.run  # most requests
        if not is_meant and job is not None and (refusal := misdirected(body, job.run, self.incarnation)):
            return [Reply(to, refusal)]
        if isinstance(body, Exchange) and isinstance(exchanges, Asynchronous):  # it serves
            if self._leaving.is_under_way:  # its next life answers: what came now would be lost
                return []
            replies = exchanges.exchange(to, body, now)
            return [*replies] if body.push is None else self._after_push(replies, exchanges, now)
        if isinstance(body, Initialise):
            return self._on_initialise(to, body)
        if self.condition not in (Condition.SERVING, Condition.SEALED):
            return [Reply(to, Refused(reason="not ready"))]
        assert self.store is not None
        assert self._exchanges is not None
        if isinstance(body, NewestPull):
            return list(self._exchanges.newest(to, body))
        if isinstance(body, ReadVector | ReadTables):
            return [Reply(to, read(body, self.store))]
        if not isinstance(body, Exchange):
            raise RemoteProtocolError(f"a partition takes no {type(body).__name__}")
        assert isinstance(self._exchanges, Synchronous)
        return self._exchange_in_step(to, body, self._exchanges, now)

    def _after_push(self, replies: list[Reply], exchanges: Asynchronous, now: float) -> list[Instruction]:
        """Async: the answers to a push, and what it may have brought about."""
        out: list[Instruction] = [*replies]
        if self._heartbeat.has_milestones and self._heartbeat.is_at_milestone(exchanges.store):
            out += self._status(now)
        if self._checkpointing.phase is CutPhase.LEVELLING:
            out += self._checkpointing.on_push(exchanges, self._snapshot_era, now)
        return out

    def _exchange_in_step(
        self, to: Hashable, body: Exchange, exchanges: Synchronous, now: float
    ) -> list[Instruction]:
        if body.era != self.era:
            return [Reply(to, Refused(reason="era"))]
        self._now_s = now
        out = exchanges.exchange(to, body, now)
        committed, self._committed = self._committed, []
        return [*committed, *out]

    def _on_commit(self) -> None:
        """Sync: a step is in; nobody has been told yet."""
        store, exchanges, now = self.store, self._synchronous, self._now_s
        assert store is not None
        assert exchanges is not None
        if exchanges.snapshot_at == store.version:
            self._committed += self._snapshot(now)
        self._committed += self._checkpointing.on_commit(
            exchanges, self._snapshot_era, self.settings.checkpoint_steps
        )
        if self.index == 0 and self._is_snapshot_due(now):
            exchanges.snapshot_at = store.version + 1  # every push of this version will carry it
        if self._heartbeat.is_at_milestone(store):
            self._committed += self._status(now)

    def _on_initialise(self, to: Hashable, body: Initialise) -> list[Instruction]:
        if self.job is None or self.incarnation is None:
            return [Reply(to, Refused(reason="not ready"))]
        if body.plan_hash != self.plan.hash:
            ours, theirs = self.plan.hash[:8], body.plan_hash[:8]
            raise RemoteProtocolError(f"this partition serves plan {ours}, not {theirs}")
        if self.store is None:
            return [*self._initialisation.on_initialise(to, body, self.job)]
        problem = difference(self.store.begun, body)
        return [Reply(to, problem or Initialised(partition=self.index))]

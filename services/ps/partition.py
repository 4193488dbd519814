"""The core of a parameter server: one partition, and the protocol around its state.

Theory of operation.  A partition is *joining* until the master has named it (an incarnation), *bare*
until a worker has initialised it or its disk holds a snapshot, in synchronous mode *unrestored* until
the master has given it an era, then *serving*, and in the end *sealed*.  It applies a minibatch only if
its ledger says that this one comes next, so a repeated, late or foreign push changes nothing.  In
synchronous mode it stages pushes and commits a step by itself once every open slot is there; pulls are
held until they are due.  PROTOCOL: sections 3 to 6.

Every public method takes an event and the time and returns instructions; nothing here reads a clock, a
socket or a file, except that `Snapshots` lists and loads what this partition has written.
"""

from collections.abc import Callable, Hashable
from enum import Enum

from edlz.services.errors import EdlzError, RemoteProtocolError
from edlz.services.messages import (
    ANY_VERSION,
    NO_IDENTITY,
    ErrorReply,
    Exchange,
    Exchanged,
    Granted,
    Identity,
    Initialise,
    Initialised,
    Job,
    Message,
    NewestPull,
    PartitionOrders,
    PartitionStatus,
    PartitionTelemetry,
    Pull,
    Push,
    ReadVector,
    Refused,
    SnapshotName,
    VectorPart,
)
from edlz.services.plan import Plan
from edlz.services.ps.instructions import Drop, Exit, Instruction, Link, Reply, Report, Snapshots, Write
from edlz.services.ps.store import State, Store, Values, initial_digest

__all__ = ["BASE", "Condition", "Partition"]

BASE: SnapshotName = (NO_IDENTITY, 0)
HEARTBEAT_S = 1.0


class Condition(Enum):
    """Where a partition stands; derived from its state, never stored."""

    JOINING = "joining"
    BARE = "bare"
    UNRESTORED = "unrestored"
    SERVING = "serving"
    SEALED = "sealed"


class Partition:
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
        self.index, self.boot, self.endpoint = index, boot, endpoint
        self._snapshots, self._telemetry = snapshots, telemetry
        self.job: Job | None = None
        self.incarnation: Identity | None = None
        self.era: Identity | None = None  # sync: None until restored
        self.term = 0
        self.store: Store | None = None
        self.is_sealed = False
        self._seq = 0
        self._obeyed = 0  # number of the last orders obeyed in this term
        self._ledger_known: tuple[int, Identity | None, Identity | None] | None = None
        self._next_status_s = 0.0
        self._status_version = 0
        self._snapshot_at = 0  # sync: version at which all partitions cut
        self._last_snapshot_s = 0.0
        self._is_sealing = False
        self._staged: dict[int, Push] = {}  # sync: task -> push, all of the step after this version
        self._held: dict[Hashable, tuple[Pull, bool]] = {}  # sync: pulls that are not due, with "knows mine"
        self._initial: State | None = None  # being written as the base
        self._initialisers: list[Hashable] = []

    @property
    def condition(self) -> Condition:
        if self.job is None or self.incarnation is None:
            return Condition.JOINING
        if self.store is None:
            return Condition.BARE
        if self.plan.is_sync and self.era is None:
            return Condition.UNRESTORED
        return Condition.SEALED if self.is_sealed else Condition.SERVING

    @property
    def plan(self) -> Plan:
        assert self.job is not None
        return self.job.plan

    # -- time

    def on_tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        if self.condition is Condition.SERVING and not self.plan.is_sync and self._is_snapshot_due(now):
            out += self._snapshot(now)
        if now >= self._next_status_s:
            out += self._status(now)
        return out

    def _status(self, now: float) -> list[Instruction]:
        self._seq += 1
        self._next_status_s = now + HEARTBEAT_S
        ledger = self.store.ledger if self.store else None
        is_known = self._ledger_known == (self.term, self.incarnation, self.era)
        self._status_version = self.store.version if self.store else 0
        return [
            Report(
                PartitionStatus(
                    partition=self.index,
                    boot=self.boot,
                    incarnation=self.incarnation,
                    seq=self._seq,
                    term=self.term,
                    endpoint=self.endpoint,
                    era=self.era,
                    version=self._status_version,
                    has_base=self.store is not None,
                    ledger=None if ledger is None or is_known else ledger.record(),
                    finished_tasks=len(ledger.finished) if ledger else 0,
                    minibatches=ledger.minibatches if ledger else 0,
                    open_minibatches=sum(ledger.marks.values()) if ledger else 0,
                    snapshots=self._snapshots.names() if self.store else (),
                    is_sealed=self.is_sealed,
                    telemetry=self._telemetry(),
                )
            )
        ]

    def _status_at_milestone(self, store: Store, now: float) -> list[Instruction]:
        """Tell the master at once of a version at which it opens an evaluation round."""
        assert self.job is not None
        every = int(self.job.config.get("evaluation_steps") or 0)
        is_passed = every and store.version // every > self._status_version // every
        return self._status(now) if is_passed else []

    # -- master

    def on_answer(self, asked: PartitionStatus, answer: Message, now: float) -> list[Instruction]:
        """The master's answer to a status."""
        if not isinstance(answer, Granted | PartitionOrders) or answer.term < self.term:
            return []
        if answer.term > self.term:
            self.term, self._obeyed = answer.term, 0
            return self._status(now)
        if isinstance(answer, Granted):
            return self._on_granted(answer, now)
        if answer.number < self._obeyed or answer.incarnation != self.incarnation:
            return [Exit("another process has taken this partition's place")] if answer.stop else []
        self._obeyed = answer.number
        if asked.ledger is not None:
            self._ledger_known = (asked.term, asked.incarnation, asked.era)
        return self._obey(answer, now)

    def _on_granted(self, granted: Granted, now: float) -> list[Instruction]:
        if self.incarnation is not None or granted.incarnation is None:
            return []
        assert granted.job is not None
        self.job = granted.job
        self._snapshots.open(self.job)
        names = self._snapshots.names()
        if names:
            newest = max(names, key=lambda name: (name[1], name[0]))
            try:
                self._load(self._snapshots.load(newest))
            except EdlzError as error:
                return [Exit(f"{error.message}; joining again without it", 1)]
        self.incarnation = granted.incarnation
        self._last_snapshot_s = now
        return self._status(now)

    def _load(self, state: State) -> None:
        self.store = Store(state)
        self._staged, self._held, self.is_sealed, self._is_sealing = {}, {}, False, False
        self._snapshot_at = 0

    def _obey(self, orders: PartitionOrders, now: float) -> list[Instruction]:
        if orders.stop:
            return [Exit("the master said stop")]
        if self.store is None:
            return []
        is_newer = orders.era is not None and (self.era is None or orders.era > self.era)
        if orders.restore is not None and orders.era is not None and is_newer:
            return self._restore(orders.restore, orders.era, now)
        if self.plan.is_sync and orders.era != self.era:
            return []
        out: list[Instruction] = [
            Drop(name) for name in self._snapshots.names() if name[1] < orders.discard_below and name != BASE
        ]
        is_full = len(self.store.ledger.finished) == self.plan.task_count
        if orders.seal and is_full and not self.is_sealed and not self._is_sealing:
            self._is_sealing = True
            out.append(Write("seal", self.store.capture(self._life)))
        return out

    def _restore(self, name: SnapshotName, era: Identity, now: float) -> list[Instruction]:
        if name not in self._snapshots.names():
            return [Exit(f"snapshot {name} is gone; joining again", 1)]
        try:
            self._load(self._snapshots.load(name))
        except EdlzError as error:
            return [Exit(f"{error.message}; joining again without it", 1)]
        self.era, self._last_snapshot_s = era, now
        newer = [other for other in self._snapshots.names() if other[1] > name[1]]
        return [Link(name), *(Drop(other) for other in newer), *self._status(now)]

    @property
    def _life(self) -> Identity:
        """The first part of a snapshot's name: the era, or (async) the incarnation."""
        life = self.era if self.plan.is_sync else self.incarnation
        assert life is not None
        return life

    # -- snapshots

    def _is_snapshot_due(self, now: float) -> bool:
        assert self.job is not None
        every_s = float(self.job.config.get("recovery_snapshot_secs") or 0)
        return bool(every_s) and now - self._last_snapshot_s > every_s

    def _snapshot(self, now: float) -> list[Instruction]:
        assert self.store is not None
        self._last_snapshot_s = now
        return [Write("snapshot", self.store.capture(self._life))]

    def is_wanted(self, write: Write) -> bool:
        """Asked before the rename: a file of an era left meanwhile is thrown away."""
        return write.kind == "base" or not self.plan.is_sync or write.state.era == self.era

    def on_written(self, write: Write, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        if write.kind == "base":
            self._load(write.state)
            self._initial = None
            out += [Reply(to, Initialised(partition=self.index)) for to in self._initialisers]
            self._initialisers = []
        elif not self.is_wanted(write):
            return []
        elif write.kind == "seal":
            self.is_sealed, self._is_sealing = True, False
        if write.kind != "base" and not self.plan.is_sync:
            older = [name for name in self._snapshots.names() if name[1] < write.state.version]
            out += [Drop(name) for name in older if name != BASE]
        return out + self._status(now)

    # -- requests

    def on_request(self, to: Hashable, body: Message, now: float) -> list[Instruction]:
        """A worker's or the master's request; answered by Reply instructions, perhaps later.

        Raises
        ------
        RemoteProtocolError
            If the request does not fit this partition; nothing has changed.
        """
        if isinstance(body, Initialise):
            return self._on_initialise(to, body)
        if self.condition not in (Condition.SERVING, Condition.SEALED):
            return [Reply(to, Refused(reason="not ready"))]
        assert self.store is not None
        if isinstance(body, NewestPull):
            return [Reply(to, self._exchanged(None, self.store.values(), body.have_version))]
        if isinstance(body, ReadVector):
            return [Reply(to, self._read(body, self.store))]
        if not isinstance(body, Exchange):
            raise RemoteProtocolError(f"a partition takes no {type(body).__name__}")
        if self.plan.is_sync and body.era != self.era:
            return [Reply(to, Refused(reason="era"))]
        if body.push is not None:
            self._check(body.push, self.store)
        if self.plan.is_sync:
            return self._exchange_sync(to, body, self.store, now)
        return self._exchange_async(to, body, self.store, now)

    def _on_initialise(self, to: Hashable, body: Initialise) -> list[Instruction]:
        if self.job is None or self.incarnation is None:
            return [Reply(to, Refused(reason="not ready"))]
        if body.plan_hash != self.plan.hash:
            ours, theirs = self.plan.hash[:8], body.plan_hash[:8]
            raise RemoteProtocolError(f"this partition serves plan {ours}, not {theirs}")
        begun = self.store.base_digest if self.store else self._initial.base_digest if self._initial else None
        if begun is not None:
            if body.digest != begun:
                return [Reply(to, _unequal(self.index))]
            if self.store is not None:
                return [Reply(to, Initialised(partition=self.index))]
            self._initialisers.append(to)
            return []
        if body.dense is None or body.state is None or body.counters is None:
            return [Reply(to, Refused(reason="not ready"))]
        values = (body.dense, body.state, body.counters)
        if initial_digest(body.plan_hash, body.layout, body.optimizer, *values) != body.digest:
            raise RemoteProtocolError("the initial values do not have the digest that came with them")
        try:
            self._initial = Store.initial(
                plan_hash=body.plan_hash,
                task_count=self.plan.task_count,
                partition=self.index,
                partitions=self.job.partitions,
                layout=body.layout,
                optimizer=body.optimizer,
                dense=body.dense,
                state=body.state,
                counters=body.counters,
            )
        except ValueError as error:
            raise RemoteProtocolError(f"cannot initialise partition {self.index}: {error}") from error
        self._initialisers.append(to)
        return [Write("base", self._initial)]

    def _check(self, push: Push, store: Store) -> None:
        if not 0 <= push.task < self.plan.task_count or push.index < 0:
            raise RemoteProtocolError(f"the plan has no minibatch ({push.task}, {push.index})")
        try:
            store.check(push)
        except ValueError as error:
            raise RemoteProtocolError(f"push of minibatch ({push.task}, {push.index}): {error}") from error

    def _exchanged(self, task: int | None, values: Values | None, have_version: int) -> Exchanged:
        assert self.store is not None
        assert self.incarnation is not None
        wanted = values if values is not None and values.version != have_version else None
        return Exchanged(
            incarnation=self.incarnation,
            mark=self.store.ledger.mark(task) if task is not None else 0,
            finished=task is not None and task in self.store.ledger.finished,
            version=values.version if values is not None else self.store.version,
            snapshot_at=self._snapshot_at,
            dense=wanted.dense if wanted else None,
            state=wanted.state if wanted else None,
            counters=wanted.counters if wanted else None,
        )

    def _read(self, body: ReadVector, store: Store) -> VectorPart:
        try:
            vector = store.vector(body.vector)
        except KeyError:
            raise RemoteProtocolError(f"there is no vector {body.vector!r}; slots: {store.slots}") from None
        values = vector[body.first : body.first + body.count]
        return VectorPart(total=len(vector), slots=store.slots, values=values)

    # -- asynchronous mode (PROTOCOL: section 4)

    def _exchange_async(self, to: Hashable, body: Exchange, store: Store, now: float) -> list[Instruction]:
        push, pull = body.push, body.pull
        task: int | None = None
        out: list[Instruction] = []
        if push is not None:
            task = push.task
            if body.incarnation != self.incarnation:
                return [Reply(to, Refused(reason="incarnation"))]
            mark = store.ledger.mark(task)
            if task not in store.ledger.finished:
                if push.index > mark:
                    return [Reply(to, Refused(reason="gap"))]
                if push.index == mark:
                    store.apply(push)
                    out = self._status_at_milestone(store, now)
        if pull is None:
            return [Reply(to, self._exchanged(task, None, ANY_VERSION)), *out]
        have = pull.have_version if body.incarnation == self.incarnation else ANY_VERSION
        return [Reply(to, self._exchanged(pull.task, store.values(), have)), *out]

    # -- synchronous mode (PROTOCOL: section 5)

    def open_tasks(self) -> list[int]:
        """The tasks whose minibatches make the next step, in slot order."""
        assert self.store is not None
        finished = self.store.ledger.finished
        first = finished.first_missing()
        if first >= self.plan.task_count:
            return []
        return [task for task in self.plan.round_tasks(first) if task not in finished]

    def _exchange_sync(self, to: Hashable, body: Exchange, store: Store, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        push, pull = body.push, body.pull
        if push is not None:
            self._snapshot_at = max(self._snapshot_at, push.snapshot_at)
            if body.version > store.version:
                return [Reply(to, Refused(reason="behind"))]
            if body.version == store.version:
                out += self._stage(push, store, now)
        if pull is None:
            return [*out, Reply(to, self._exchanged(push.task if push else None, None, ANY_VERSION))]
        knows = body.incarnation == self.incarnation
        return [*out, *self._pull_sync(to, pull, knows, store)]

    def _stage(self, push: Push, store: Store, now: float) -> list[Instruction]:
        """Keep a slot of the next step (the first one wins), and commit when all are there."""
        open_tasks = self.open_tasks()
        if push.task not in open_tasks or push.index != store.ledger.mark(push.task):
            raise RemoteProtocolError(
                f"minibatch ({push.task}, {push.index}) is not of step {store.version}; open: {open_tasks}"
            )
        self._staged.setdefault(push.task, push)
        if any(task not in self._staged for task in open_tasks):
            return []
        pushes = [self._staged[task] for task in open_tasks]
        self._staged = {}
        store.commit(pushes)
        out: list[Instruction] = self._snapshot(now) if self._snapshot_at == store.version else []
        if self.index == 0 and self._is_snapshot_due(now):
            self._snapshot_at = store.version + 1  # every push of this version will carry it
        out += self._status_at_milestone(store, now)
        held, self._held = self._held, {}
        for to, (pull, knows) in held.items():
            out += self._pull_sync(to, pull, knows, store)
        return out

    def _pull_sync(self, to: Hashable, pull: Pull, knows: bool, store: Store) -> list[Instruction]:
        have = pull.have_version if knows else ANY_VERSION
        if pull.version is None:
            is_due = pull.task in store.ledger.finished or (
                pull.task in self.open_tasks() and store.ledger.mark(pull.task) >= pull.index
            )
            if not is_due:
                self._held[to] = (pull, knows)
                return []
            return [Reply(to, self._exchanged(pull.task, store.values(), have))]
        if pull.version in (ANY_VERSION, store.version):
            return [Reply(to, self._exchanged(pull.task, store.values(), have))]
        before = store.values_before()
        if before is not None and pull.version == before.version:
            return [Reply(to, self._exchanged(pull.task, before, have))]
        return [Reply(to, Refused(reason="moved on"))]

    # -- checks

    def check_invariants(self) -> None:
        """Assert what must hold between events (PROTOCOL: section 9)."""
        if self.store is None:
            return
        counts, ledger = self.store.counts, self.store.ledger
        assert int(counts.sum()) == ledger.minibatches, "a minibatch was not applied once"
        for task, mark in ledger.marks.items():
            assert counts[task] == mark, f"task {task} has mark {mark}, applied {counts[task]}"
        if self.plan.is_sync:
            assert set(self._staged) <= set(self.open_tasks()), "a staged slot is not open"


def _unequal(index: int) -> ErrorReply:
    return ErrorReply(
        code="config",
        message=f"this worker's initial model differs from the one that partition {index} began with",
        help="use the same model file, TensorFlow and Keras on all workers, and no randomness outside Keras",
    )

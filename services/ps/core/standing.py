"""What a partition stands at: its job, its life, its era, and the state that it serves.

The ledger says what should be in a state; `Store.counts` says what was applied, task by task, and nothing in the ledger
moves it.  The two agree, or the promise of exactly once is broken: its `recount` compares them.
"""

from abc import ABC, abstractmethod
from enum import Enum

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.errors import EdlzError
from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import NO_IDENTITY, ClosedTask, Identity, Job, Recount, SnapshotName
from edlz.services.protocol.plan import Plan
from edlz.services.ps.core.asynchronous import Asynchronous, AsyncSettings
from edlz.services.ps.core.heartbeat import Heartbeat
from edlz.services.ps.core.instructions import Drop, Instruction, Snapshots, Warn
from edlz.services.ps.core.recovery import RecoverySnapshots, Targets
from edlz.services.ps.core.synchronous import Synchronous
from edlz.services.ps.core.task_ends import TaskEnds
from edlz.services.transitions import Transitions

__all__ = ["STEPS", "Condition", "Standing"]


class Condition(Enum):
    """Where a partition stands; derived from its state, never stored."""

    JOINING = "joining"  # the master has not named it
    BARE = "bare"  # it has no state
    UNRESTORED = "unrestored"  # sync: it has one, and the master has not said which era it is of
    SERVING = "serving"
    SEALED = "sealed"  # it has every minibatch, and has said so on disk


# A state that is found damaged when an era is to begin with it is lost; then an older one takes its place, or none.
STEPS = Transitions(
    "a partition",
    Condition.JOINING,
    {
        Condition.JOINING: {Condition.BARE, Condition.UNRESTORED, Condition.SERVING},
        Condition.BARE: {Condition.UNRESTORED, Condition.SERVING},
        Condition.UNRESTORED: {Condition.SERVING, Condition.BARE},
        Condition.SERVING: {Condition.SEALED, Condition.UNRESTORED, Condition.BARE},
        Condition.SEALED: {Condition.SERVING, Condition.UNRESTORED, Condition.BARE},
    },
)


class Standing(ABC):
    """The state of one partition, and what follows from it.

    Parameters
    ----------
    snapshots : Snapshots
        Its disk.
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self.job: Job | None = None
        self._settings: JobSettings | None = None  # the job's
        self.incarnation: Identity | None = None
        self.era: Identity | None = None  # sync: None until restored
        self.store: Store | None = None
        self.is_sealed = self._is_sealing = False
        self._exchanges: Synchronous | Asynchronous | None = None  # of this life and era, while serving
        self._task_ends = TaskEnds(are_known=False)
        self._targets = Targets(snapshots, self._task_ends)
        self._recovery = RecoverySnapshots()
        self._heartbeat = Heartbeat()

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

    @property
    def settings(self) -> JobSettings:
        assert self._settings is not None
        return self._settings

    def _take_job(self, job: Job) -> None:
        settings = JobSettings.of(job.config)  # raises before anything has changed
        self.job, self._settings = job, settings

    @property
    def _snapshot_era(self) -> Identity:
        """The first part of a snapshot's name: the era, or (async) the incarnation."""
        life = self.era if self.plan.is_sync else self.incarnation
        assert life is not None
        return life

    @property
    def exchanges(self) -> Synchronous | Asynchronous | None:
        """What answers workers now."""
        return self._exchanges

    @property
    def _asynchronous(self) -> Asynchronous | None:
        return self._exchanges if isinstance(self._exchanges, Asynchronous) else None

    @property
    def _synchronous(self) -> Synchronous | None:
        return self._exchanges if isinstance(self._exchanges, Synchronous) else None

    def _recount(self) -> Recount:
        store = self.store
        return Recount() if store is None else store.counts.recount(self.plan)

    def _is_saved(self, store: Store) -> bool:
        """Whether the state as it is now is durable here, or about to be as the last one."""
        return self._is_sealing or (self._snapshot_era, store.version) in self._snapshots.names()

    def _is_snapshot_due(self, now: float) -> bool:
        return self._recovery.is_due(self.settings.recovery_snapshot_secs, now)

    def _snapshot(self, now: float) -> list[Instruction]:
        assert self.store is not None
        return [*self._recovery.take(self.store, self._snapshot_era, now)]

    def _dropped_below(self, version: int) -> list[Instruction]:
        """Let go of the snapshots below a version; the state before training stays."""
        older = [name for name in self._snapshots.names() if name[1] < version]
        return [Drop(name) for name in older if name[0] != NO_IDENTITY]

    @property
    def _closed_tasks(self) -> tuple[ClosedTask, ...]:
        exchanges = self._exchanges
        return () if exchanges is None else self._task_ends.closed(exchanges.standing)

    @property
    def _is_left_with_nothing(self) -> bool:
        """Whether nothing of what this life has found can be begun with any more: a task was ended, or it is gone."""
        return self.condition is Condition.UNRESTORED and not self._targets.newest_first()

    # -- the state

    def _load_newest(self, incarnation: Identity) -> tuple[SnapshotName | None, list[Instruction]]:
        """Begin with the newest of what there is that can be read, if any."""
        out: list[Instruction] = []
        for name in self._targets.newest_first():
            try:
                self._load(name, incarnation)
            except EdlzError as error:
                out.append(Warn(f"{error.message}; what is older takes its place"))
            else:
                return name, out
        return None, out

    def _load(self, name: SnapshotName, incarnation: Identity) -> None:
        try:
            state = self._snapshots.load(name, incarnation, self._task_ends.known)
            self.store = self._exchanges = None  # two would take twice the memory
            self.store = Store(state, self.plan.seed)
        except EdlzError:
            self._targets.leave_out(name)
            raise
        self.is_sealed, self._is_sealing = False, False
        self._serve(self.store, incarnation)

    def _serve(self, store: Store, incarnation: Identity) -> None:
        settings = self.settings
        cuts_every = 0 if self.plan.is_sync else settings.checkpoint_steps
        self._heartbeat.begin_life((settings.evaluation_steps, cuts_every))
        if self.plan.is_sync:
            self._exchanges = Synchronous(self.plan, store, incarnation, self._on_commit)
            self._exchanges.task_ends = self._task_ends
            return
        how = AsyncSettings(settings.lr_staleness_modulation, settings.sync_version_tolerance)
        self._exchanges = Asynchronous(self.plan, store, incarnation, how)
        self._exchanges.task_ends = self._task_ends

    @abstractmethod
    def _on_commit(self) -> None:
        """Sync: a step is in; nobody has been told yet."""

    # -- checks

    def check_invariants(self) -> None:
        """Assert what must hold between events (PROTOCOL: section 9)."""
        if self.store is None:
            return
        counts, ledger = self.store.counts, self.store.ledger
        assert counts.total == ledger.minibatches, "a minibatch was not applied once"
        for task, mark in ledger.marks.items():
            assert counts.of(task) == mark, f"task {task} has mark {mark}, applied {counts.of(task)}"
        synchronous = self._synchronous
        if synchronous is not None:
            assert set(synchronous.staged) <= set(synchronous.open_tasks()), "a staged slot is not open"

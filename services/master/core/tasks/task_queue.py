"""The core that decides which worker works on which task.

Theory of operation.  The plan fixes the tasks and their order; the partitions' ledgers say which are
done.  A lease only decides who *should* work: two workers on one task cost time, nothing else.  A
worker's leases are what its statuses say it holds; a task that nobody holds is free.  In synchronous
mode tasks are taken round by round, and a worker may not take the slots that others are waiting for
(PROTOCOL: sections 3 and 5).

With thousands of workers no event may cost a look at all of them, or at all tasks: hence `Leases`, and the one
worker that is remembered in `_may_take`.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from statistics import median

from edlz.services.master.core.tasks.leases import Leases
from edlz.services.master.core.tasks.task_failures import NO_ROUND, Attempts, FailedAttempts
from edlz.services.protocol.buckets import DURATIONS_S, Buckets
from edlz.services.protocol.ledger import LedgerRecord, TaskSet
from edlz.services.protocol.messages import FailedTask, Identity, WorkerStatus
from edlz.services.protocol.plan import Plan

__all__ = ["Holder", "TaskQueue"]

LEASE_FLOOR_S = 30.0
LEASE_MEDIANS = 3.0
SAMPLES = 50


@dataclass
class Holder:
    """What the queue knows of a live worker."""

    incarnation: Identity
    holding: tuple[int, ...] = ()


@dataclass
class TaskQueue:
    """Tasks, leases, attempts.

    Parameters
    ----------
    plan : Plan
        The job's plan.

    Attributes
    ----------
    task_count : int
        How many tasks the job has: fewer than its plan, if it has been ended.
    known : int
        How many of them there are by now: fewer, if the data grows.
    fence : int
        A barrier that is not passed stands before this task: from here on tasks are *barred*.  Of those only the
        first round is leased, to workers that keep back what they compute of it.
    again : TaskSet
        Tasks that were given back by a lost worker, or failed, while this master looked on.
    failures, durations : Counter, Buckets
        How often that was, by reason; and how long tasks took from lease to end.
    begun : int
        No task from this one on has been begun, as far as is known: some partition may have minibatches of those before.
    """

    plan: Plan
    done: TaskSet = field(default_factory=TaskSet)
    suspects: set[int] = field(default_factory=set)  # in hand of workers that died; see `DeadlyTasks`
    _leases: Leases = field(default_factory=Leases)  # closed there: what is done, or closed here
    _returned: dict[int, None] = field(default_factory=dict)  # a lost worker's free tasks: first in line
    _failed: FailedAttempts = field(default_factory=FailedAttempts)
    _durations_s: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _closed: set[int] = field(default_factory=set)  # not leased until it is decided where they end
    _open_round: tuple[int, float] = (-1, 0.0)  # sync: first task of the round in work, and since when
    task_count: int = field(init=False)
    known: int = field(init=False)
    fence: int = field(init=False)
    begun: int = 0
    again: TaskSet = field(default_factory=TaskSet)
    failures: Counter[str] = field(default_factory=Counter)
    durations: Buckets = field(default_factory=lambda: Buckets(DURATIONS_S))
    _waiting_for: str = ""  # sync: a worker that had less than its share when `_may_take` last looked

    def __post_init__(self) -> None:
        self.task_count = self.known = self.fence = self.plan.task_count

    @property
    def has_all(self) -> bool:
        """Whether all tasks that there are by now are done, and others may come."""
        return self.known < self.task_count and self.done.first_missing() >= self.known

    @property
    def is_done(self) -> bool:
        return self.done.first_missing() >= self.task_count

    @property
    def lease_timeout_s(self) -> float:
        if not self._durations_s:
            return LEASE_FLOOR_S
        return max(LEASE_FLOOR_S, LEASE_MEDIANS * median(self._durations_s))

    @property
    def leased(self) -> tuple[int, ...]:
        """The tasks that somebody should work on now."""
        return tuple(self._leases)

    def holder(self, task: int) -> Identity | None:
        return self._leases.holder(task)

    def is_barred(self, task: int) -> bool:
        """Whether a task lies behind a barrier that is not passed yet."""
        return task >= self.fence

    # -- events

    def restart(self, done: TaskSet) -> None:
        """Begin again from what the ledgers have (a new era, or a restarted master)."""
        self.done, self._returned = done, {}
        self._leases = Leases(self._unleased)

    def see(self, ledger: LedgerRecord) -> None:
        """A partition has this ledger: the tasks in it have been begun."""
        self.begun = max([self.begun, *ledger.finished[-1:], *(task + 1 for task, _ in ledger.marks)])

    def keep(self, finished: TaskSet) -> None:
        """A partition began a new life with this ledger: what it lacks is not done."""
        self.done = self.done.intersection(finished)
        self._leases.reopen(self._unleased)

    def finish(self, task: int, now: float) -> None:
        """A true report: every partition has finished the task."""
        self.done.add(task)
        self.suspects.discard(task)
        self._returned.pop(task, None)
        lease = self._leases.close(task)
        if lease:
            self._durations_s.append(now - lease.given_s)
            self.durations.note(now - lease.given_s)

    def release(self, incarnation: Identity) -> None:
        """A worker is gone: its tasks go to the front of the queue."""
        back = self._leases.held_by(incarnation)
        for task in back:
            self._leases.end(task)
            self.again.add(task)
            self.failures["worker lost"] += 1
        self._returned = dict.fromkeys([*back, *self._returned])

    def reconcile(self, status: WorkerStatus, *, has_progress: bool, now: float) -> None:
        """A worker's leases are what it says it holds."""
        assert status.incarnation is not None
        mine, holding = status.incarnation, set(status.holding)
        for task in self._leases.held_by(mine):
            if task not in holding:
                self._leases.end(task)
        if has_progress:
            self._leases.renew(mine, now)
        for task in status.holding:
            if self._leases.is_free(task) and 0 <= task < self.plan.task_count:
                self._lease(task, mine, now)

    def fail(self, worker: str, boot: int, failed: FailedTask) -> Attempts | None:
        """Count a failed attempt; return all attempts, when this was the last one allowed."""
        self.again.add(failed.task)
        self.failures["error"] += 1
        return self._failed.count(worker, boot, failed)

    def forgive(self, task: int) -> None:
        """Forget the attempts that ended with their worker: the task has got on since."""
        self._failed.forgive_deaths((NO_ROUND, task))

    def close(self, task: int) -> None:
        """Lease a bad task no more, until it is known where it ends."""
        self._closed.add(task)
        self._returned.pop(task, None)
        self._leases.close(task)

    def reopen(self, task: int) -> None:
        """Lease a task again; its attempts start anew."""
        self._closed.discard(task)
        self.suspects.discard(task)
        self._failed.forget((NO_ROUND, task))
        self._leases.reopen(self._unleased)

    @property
    def _unleased(self) -> TaskSet:
        """The tasks that are done or closed."""
        tasks = TaskSet(self.done.bounds)
        for task in self._closed:
            tasks.add(task)
        return tasks

    # -- leases

    def next_task(
        self,
        status: WorkerStatus,
        workers: Mapping[str, Holder],
        now: float,
        only: frozenset[int] | None = None,
    ) -> int | None:
        """Return the task that this worker should take next, and lease it.

        Parameters
        ----------
        status : WorkerStatus
            Of the worker that asks.
        workers : dict
            All live workers that have asked for work, by id.
        only : frozenset of int, optional
            The tasks that may be leased now; None for all.
        """
        assert status.incarnation is not None
        if self.is_done:
            return None
        if only is not None:
            task = self._next_of(only, status, now)
        else:
            find = self._next_sync if self.plan.is_sync else self._next_async
            task = find(status, workers, now)
        if task is not None and self.suspects and not self._may_join(task, status):
            return None
        if task is not None:
            self._lease(task, status.incarnation, now)
        return task

    def is_free_for_suspects(self, status: WorkerStatus) -> bool:
        """Whether a worker is at no training task: it has none in hand, or all that it has waits."""
        return status.is_waiting or all(task in self.done for task in status.holding)

    def _may_join(self, task: int, status: WorkerStatus) -> bool:
        """Whether a worker may take a task to what it has in hand: a suspect is worked on alone."""
        is_any_suspect = not self.suspects.isdisjoint((task, *status.holding))
        return not is_any_suspect or (self.is_free_for_suspects(status) and not status.evaluating)

    def _lease(self, task: int, incarnation: Identity, now: float) -> None:
        self._leases.give(task, incarnation, now)
        self._returned.pop(task, None)
        self.begun = max(self.begun, task + 1)

    def _next_of(self, only: frozenset[int], status: WorkerStatus, now: float) -> int | None:
        overdue, is_free = self._overdue(status, now), self._leases.is_free
        wanted = (t for t in sorted(only) if t in overdue or (is_free(t) and t not in status.holding))
        return next(wanted, None)

    def _next_async(self, status: WorkerStatus, workers: Mapping[str, Holder], now: float) -> int | None:
        everything = range(min(self.fence, self.known))
        overdue = self._overdue(status, now)
        if status.holding:  # one more to prepare, but never the last ones: others may be idle by then
            free_count = len(everything) - self._leases.taken_count + len(overdue)
            if free_count <= max(len(workers), 1):
                return None
        if self._returned:
            return next(iter(self._returned))
        return self._leases.first(everything, overdue, status.holding)

    def _next_sync(self, status: WorkerStatus, workers: Mapping[str, Holder], now: float) -> int | None:
        first, horizon = self.done.first_missing(), self._horizon(status)
        if first >= horizon:
            return None
        current = self._slots(first, horizon)
        if self._open_round[0] != current[0] or self.is_barred(first):
            self._open_round = (current[0], now)
        tasks = current
        task = self._leases.first(current, self._overdue(status, now), status.holding)
        if task is None and current[-1] + 1 < horizon:
            tasks = self._slots(current[-1] + 1, horizon)
            mine = (tasks[0] + held - current[0] for held in sorted(status.holding) if held in current)
            own = (slot for slot in mine if slot in tasks and self._leases.is_free(slot))
            task = next(own, None)
            if task is None:
                task = self._leases.first_free(tasks)
        if task is None or (self.is_barred(task) and task in self.suspects):
            return None  # nobody is lost for what may never be trained
        return task if self._may_take(status, tasks, workers) else None

    def _horizon(self, status: WorkerStatus) -> int:
        """No task from this one on is leased to a worker."""
        if self.fence >= self.task_count or not status.computes_ahead:
            return min(self.fence, self.known)
        return min(self._slots(self.fence, self.task_count).stop, self.known)

    def _slots(self, task: int, end: int) -> range:
        """The tasks of a task's round before `end`; the job's last round may have fewer than its plan's."""
        tasks = self.plan.round_tasks(task)
        return range(tasks.start, min(tasks.stop, end))

    def _overdue(self, status: WorkerStatus, now: float) -> list[int]:
        """Return the tasks that others have held for too long."""
        timeout_s = self.lease_timeout_s
        if self.plan.is_sync and now - self._open_round[1] <= timeout_s:
            return []  # a lease of a later round ages only from when its round opens
        return [task for task in self._leases.overdue(now, timeout_s) if task not in status.holding]

    def _may_take(self, status: WorkerStatus, slots: range, workers: Mapping[str, Holder]) -> bool:
        """Who waits first must not take the others' slots of a round."""
        me = status.worker
        share = -(-self.plan.slots // (len(workers) + (me not in workers)))
        if _count(status.holding, slots) >= share:
            # Most often the one who was waited for is waited for still: then nobody else is looked at.
            likely = (self._waiting_for,) if self._waiting_for in workers else ()
            for worker in chain(likely, workers):
                if worker != me and _count(workers[worker].holding, slots) < share:
                    self._waiting_for = worker
                    return False
        return True

    # -- checks

    def check_invariants(self) -> None:
        self._leases.check_invariants(self._unleased)
        assert all(map(self._leases.is_free, self._returned)), "a returned task is done, or leased"


def _count(tasks: tuple[int, ...], slots: range) -> int:
    return sum(task in slots for task in tasks)

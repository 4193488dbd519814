"""The core that decides which worker works on which task.

Theory of operation.  The plan fixes the tasks and their order; the partitions' ledgers say which are
done.  A lease only decides who *should* work: two workers on one task cost time, nothing else.  A
worker's leases are what its statuses say it holds; a task that nobody holds is free.  In synchronous
mode tasks are taken round by round, and a worker may not take the slots that others are waiting for
(PROTOCOL: sections 3 and 5).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from edlz.services.ledger import TaskSet
from edlz.services.messages import FailedTask, Identity, WorkerStatus
from edlz.services.plan import Plan

__all__ = ["MAX_ATTEMPTS", "Holder", "TaskQueue"]

MAX_ATTEMPTS = 3
LEASE_FLOOR_S = 30.0
LEASE_MEDIANS = 3.0
SAMPLES = 50


@dataclass
class Holder:
    """What the queue knows of a live worker."""

    incarnation: Identity
    holding: tuple[int, ...] = ()


@dataclass
class _Lease:
    incarnation: Identity
    given_s: float
    since_s: float  # given, or its holder's last progress


@dataclass
class TaskQueue:
    """Tasks, leases, attempts.

    Parameters
    ----------
    plan : Plan
        The job's plan.
    """

    plan: Plan
    done: TaskSet = field(default_factory=TaskSet)
    _leases: dict[int, _Lease] = field(default_factory=dict)
    _returned: list[int] = field(default_factory=list)  # a lost worker's tasks: first in line
    _failures: dict[int, list[tuple[str, FailedTask]]] = field(default_factory=dict)
    _seen_failures: set[tuple[int, int, int]] = field(default_factory=set)
    _durations_s: list[float] = field(default_factory=list)
    _open_round: tuple[int, float] = (-1, 0.0)  # sync: first task of the round in work, and since when

    @property
    def is_done(self) -> bool:
        return len(self.done) == self.plan.task_count

    @property
    def lease_timeout_s(self) -> float:
        if not self._durations_s:
            return LEASE_FLOOR_S
        return max(LEASE_FLOOR_S, LEASE_MEDIANS * median(self._durations_s))

    def holder(self, task: int) -> Identity | None:
        lease = self._leases.get(task)
        return lease.incarnation if lease else None

    # -- events

    def restart(self, done: TaskSet) -> None:
        """Begin again from what the ledgers have (a new era, or a restarted master)."""
        self.done, self._leases, self._returned = done, {}, []

    def keep(self, finished: TaskSet) -> None:
        """A partition began a new life with this ledger: what it lacks is not done."""
        self.done = self.done.intersection(finished)

    def finish(self, task: int, now: float) -> None:
        """A true report: every partition has finished the task."""
        self.done.add(task)
        lease = self._leases.pop(task, None)
        if lease:
            self._durations_s = [*self._durations_s[-SAMPLES + 1 :], now - lease.given_s]

    def release(self, incarnation: Identity) -> None:
        """A worker is gone: its tasks go to the front of the queue."""
        back = sorted(task for task, lease in self._leases.items() if lease.incarnation == incarnation)
        for task in back:
            del self._leases[task]
        self._returned = back + [task for task in self._returned if task not in back]

    def reconcile(self, status: WorkerStatus, *, has_progress: bool, now: float) -> None:
        """A worker's leases are what it says it holds."""
        assert status.incarnation is not None
        mine, holding = status.incarnation, set(status.holding)
        for task, lease in list(self._leases.items()):
            if task in self.done or (lease.incarnation == mine and task not in holding):
                del self._leases[task]
            elif has_progress and lease.incarnation == mine:
                lease.since_s = now
        for task in status.holding:
            if task not in self.done and task not in self._leases and 0 <= task < self.plan.task_count:
                self._lease(task, mine, now)

    def fail(self, worker: str, boot: int, failed: FailedTask) -> list[tuple[str, FailedTask]] | None:
        """Count a failed attempt; a repeated report counts once.

        Returns
        -------
        list of (worker, FailedTask), or None
            All attempts, when this was the last one allowed.
        """
        key = (boot, failed.task, failed.attempt)
        if key in self._seen_failures:
            return None
        self._seen_failures.add(key)
        attempts = self._failures.setdefault(failed.task, [])
        attempts.append((worker, failed))
        return attempts if len(attempts) >= MAX_ATTEMPTS else None

    # -- leases

    def next_task(
        self,
        status: WorkerStatus,
        workers: dict[str, Holder],
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
            free = (task for task in sorted(only) if task not in self.done)
            task = next((task for task in free if self._is_free(task, status, now)), None)
        else:
            find = self._next_sync if self.plan.is_sync else self._next_async
            task = find(status, workers, now)
        if task is not None:
            self._lease(task, status.incarnation, now)
        return task

    def _lease(self, task: int, incarnation: Identity, now: float) -> None:
        self._leases[task] = _Lease(incarnation, now, now)
        if task in self._returned:
            self._returned.remove(task)

    def _next_async(self, status: WorkerStatus, workers: dict[str, Holder], now: float) -> int | None:
        needed = 1
        if status.holding:  # one more to prepare, but never the last ones: others may be idle by then
            needed = max(len(workers), 1) + 1
        free: list[int] = []
        for task in self._candidates():
            if self._is_free(task, status, now):
                free.append(task)
                if len(free) >= needed:
                    return free[0]
        return free[0] if free and not status.holding else None

    def _candidates(self) -> Iterator[int]:
        yield from (task for task in self._returned if task not in self.done)
        returned = set(self._returned)
        yield from (task for task in self.done.missing(self.plan.task_count) if task not in returned)

    def _next_sync(self, status: WorkerStatus, workers: dict[str, Holder], now: float) -> int | None:
        current = self.plan.round_tasks(self.done.first_missing())
        if self._open_round[0] != current[0]:
            self._open_round = (current[0], now)
        free = [t for t in current if t not in self.done and self._is_free(t, status, now)]
        if not free and current[-1] + 1 < self.plan.task_count:
            following = self.plan.round_tasks(current[-1] + 1)
            free = [t for t in following if t not in self.done and t not in self._leases]
            mine = {task - current[0] for task in status.holding if task in current}
            free.sort(key=lambda task: (task - following[0] not in mine, task))
        for task in free:
            if self._may_take(status, task, workers):
                return task
        return None

    def _is_free(self, task: int, status: WorkerStatus, now: float) -> bool:
        if task in status.holding:
            return False
        lease = self._leases.get(task)
        if lease is None:
            return True
        # A lease of a later round ages only from when its round opens.
        since = max(lease.since_s, self._open_round[1]) if self.plan.is_sync else lease.since_s
        return now - since > self.lease_timeout_s

    def _may_take(self, status: WorkerStatus, task: int, workers: dict[str, Holder]) -> bool:
        """Who waits first must not take the others' slots of a round."""
        slots = self.plan.round_tasks(task)
        share = -(-self.plan.slots // len(workers.keys() | {status.worker}))
        held = {worker: sum(t in holder.holding for t in slots) for worker, holder in workers.items()}
        held[status.worker] = sum(t in status.holding for t in slots)
        return held[status.worker] < share or all(number >= share for number in held.values())

    # -- checks

    def check_invariants(self) -> None:
        for task in self._leases:
            assert task not in self.done, f"task {task} is done and leased"
        assert not set(self._returned) & set(self._leases), "a returned task is leased"

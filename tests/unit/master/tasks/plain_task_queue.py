"""The task queue as a search through all tasks and all workers: slow, and plain to see."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edlz.services.master.core.tasks.task_queue import LEASE_FLOOR_S, Holder
from edlz.services.protocol.messages import Identity, WorkerStatus
from edlz.services.protocol.plan import Plan

__all__ = ["PlainTaskQueue"]


@dataclass
class PlainTaskQueue:
    """What TaskQueue decides, while no task takes longer than LEASE_FLOOR_S / LEASE_MEDIANS."""

    plan: Plan
    done: set[int] = field(default_factory=set)
    leases: dict[int, tuple[Identity, float]] = field(default_factory=dict)  # holder, and since when
    returned: list[int] = field(default_factory=list)
    round_opened: tuple[int, float] = (-1, 0.0)

    def restart(self, done: set[int]) -> None:
        self.done, self.leases, self.returned = set(done), {}, []

    def keep(self, finished: set[int]) -> None:
        self.done &= finished

    def finish(self, task: int) -> None:
        self.done.add(task)
        self.leases.pop(task, None)
        self.returned = [other for other in self.returned if other != task]

    def release(self, incarnation: Identity) -> None:
        back = sorted(task for task, (holder, _) in self.leases.items() if holder == incarnation)
        for task in back:
            del self.leases[task]
        self.returned = back + self.returned

    def reconcile(self, status: WorkerStatus, now: float, *, has_progress: bool) -> None:
        mine = status.incarnation
        assert mine is not None
        for task, (holder, _) in list(self.leases.items()):
            if holder == mine and task not in status.holding:
                del self.leases[task]
            elif holder == mine and has_progress:
                self.leases[task] = (mine, now)
        for task in status.holding:
            if task not in self.done and task not in self.leases and task < self.plan.task_count:
                self.give(task, mine, now)

    def give(self, task: int, incarnation: Identity, now: float) -> None:
        self.leases[task] = (incarnation, now)
        self.returned = [other for other in self.returned if other != task]

    def next_task(
        self, status: WorkerStatus, workers: Mapping[str, Holder], now: float, only: frozenset[int] | None
    ) -> int | None:
        missing = [task for task in range(self.plan.task_count) if task not in self.done]
        if not missing:
            return None
        if only is not None:
            task = next((t for t in missing if t in only and self.is_free(t, status, now)), None)
        elif self.plan.is_sync:
            task = self.next_sync(missing, status, workers, now)
        else:
            order = self.returned + [task for task in missing if task not in self.returned]
            free = [task for task in order if self.is_free(task, status, now)]
            least = max(len(workers), 1) + 1 if status.holding else 1
            task = free[0] if len(free) >= least else None
        if task is not None:
            assert status.incarnation is not None
            self.give(task, status.incarnation, now)
        return task

    def next_sync(
        self, missing: list[int], status: WorkerStatus, workers: Mapping[str, Holder], now: float
    ) -> int | None:
        current = self.plan.round_tasks(missing[0])
        if self.round_opened[0] != current[0]:
            self.round_opened = (current[0], now)
        free = [t for t in missing if t in current and self.is_free(t, status, now)]
        if not free and current[-1] + 1 < self.plan.task_count:
            following = self.plan.round_tasks(current[-1] + 1)
            free = [t for t in missing if t in following and t not in self.leases]
            mine = {task - current[0] for task in status.holding if task in current}
            free.sort(key=lambda task: (task - following[0] not in mine, task))
        return next((task for task in free if self.may_take(status, task, workers)), None)

    def is_free(self, task: int, status: WorkerStatus, now: float) -> bool:
        if task in status.holding:
            return False
        if task not in self.leases:
            return True
        since_s = self.leases[task][1]
        return now - (max(since_s, self.round_opened[1]) if self.plan.is_sync else since_s) > LEASE_FLOOR_S

    def may_take(self, status: WorkerStatus, task: int, workers: Mapping[str, Holder]) -> bool:
        slots = self.plan.round_tasks(task)
        share = -(-self.plan.slots // len(workers.keys() | {status.worker}))
        held = {worker: sum(t in holder.holding for t in slots) for worker, holder in workers.items()}
        held[status.worker] = sum(t in status.holding for t in slots)
        return held[status.worker] < share or all(number >= share for number in held.values())

"""Who is at work on which task: found by task, by worker and by age, however many there are.

A lease only says who *should* work.  A task is free, leased or closed; a closed one is done and has no lease.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import Identity

__all__ = ["Lease", "Leases"]


@dataclass
class Lease:
    """Leave for one worker to work on a task."""

    incarnation: Identity
    given_s: float
    since_s: float  # given, or its holder's last progress


class Leases:
    """The leases of numbered tasks.

    Times never go back from one call to the next.

    Parameters
    ----------
    closed : TaskSet, optional
        The tasks that are done.
    """

    def __init__(self, closed: TaskSet | None = None) -> None:
        self._by_task: OrderedDict[int, Lease] = OrderedDict()  # in the order of `since_s`
        self._by_holder: dict[Identity, set[int]] = {}  # the same, by incarnation; no empty sets
        self._taken = TaskSet()  # the closed and the leased
        self.reopen(closed or TaskSet())

    def __repr__(self) -> str:
        return repr(dict(self._by_task))

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_task)

    @property
    def taken_count(self) -> int:
        """How many tasks are leased or closed."""
        return len(self._taken)

    def is_free(self, task: int) -> bool:
        return task not in self._taken

    def holder(self, task: int) -> Identity | None:
        lease = self._by_task.get(task)
        return lease.incarnation if lease else None

    def held_by(self, incarnation: Identity) -> list[int]:
        """Return a worker's tasks, ascending."""
        return sorted(self._by_holder.get(incarnation, ()))

    # -- changes

    def give(self, task: int, incarnation: Identity, now: float) -> None:
        """Lease a task that is not closed; another worker's lease of it ends."""
        self.end(task)
        self._by_task[task] = Lease(incarnation, now, now)
        self._by_holder.setdefault(incarnation, set()).add(task)
        self._taken.add(task)

    def end(self, task: int) -> Lease | None:
        """Make a task free; return its lease if it had one, else nothing changes."""
        lease = self._by_task.pop(task, None)
        if lease is not None:
            tasks = self._by_holder[lease.incarnation]
            tasks.remove(task)
            if not tasks:
                del self._by_holder[lease.incarnation]
            self._taken.discard(task)
        return lease

    def close(self, task: int) -> Lease | None:
        """A task is done; return its lease if it had one."""
        lease = self.end(task)
        self._taken.add(task)
        return lease

    def reopen(self, closed: TaskSet) -> None:
        """Only these tasks are done; none of them is leased."""
        self._taken = TaskSet(closed.bounds)
        for task in self._by_task:
            self._taken.add(task)

    def renew(self, incarnation: Identity, now: float) -> None:
        """A worker gets on: its leases begin to age anew."""
        for task in self._by_holder.get(incarnation, ()):
            self._by_task[task].since_s = now
            self._by_task.move_to_end(task)

    # -- questions

    def overdue(self, now: float, timeout_s: float) -> Iterator[int]:
        """Yield the tasks whose leases are older than that, oldest first."""
        for task, lease in self._by_task.items():
            if now - lease.since_s <= timeout_s:
                return
            yield task

    def first_free(self, tasks: range, but: Collection[int] = ()) -> int | None:
        """Return the smallest free task in a range that is not one of `but`."""
        task = self._taken.first_missing(tasks.start)
        while task in but:
            task = self._taken.first_missing(task + 1)
        return task if task in tasks else None

    def first(self, tasks: range, late: Iterable[int], but: Collection[int] = ()) -> int | None:
        """Return the smallest task in a range that is one of `late`, or free and not one of `but`."""
        free = self.first_free(tasks, but)
        among = [task for task in late if task in tasks]
        return min(among if free is None else [*among, free], default=None)

    def check_invariants(self, closed: TaskSet) -> None:
        """Assert that everything here says the same of the leases and of these closed tasks."""
        held = {(task, holder) for holder, tasks in self._by_holder.items() for task in tasks}
        assert held == {(task, lease.incarnation) for task, lease in self._by_task.items()}
        assert all(self._by_holder.values()), "a worker without a lease is remembered"
        ages = [lease.since_s for lease in self._by_task.values()]
        assert ages == sorted(ages), "the oldest lease does not come first"
        for task in self._by_task:
            assert task not in closed, f"task {task} is done and leased"
        assert set(self._taken) == set(closed) | set(self._by_task)

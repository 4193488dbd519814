"""The ledger: exactly which minibatches are in a model state.

Per task a high-water mark is enough, since tasks are applied in index order; a finished task needs no
mark, and neighbouring finished tasks collapse into one interval, so a ledger stays small however long
the job is.  A ledger changes together with the state it belongs to, and only there.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

__all__ = ["Ledger", "LedgerRecord", "TaskSet"]


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A ledger as it travels and as it is stored: intervals [lo, hi) one after another, and marks."""

    finished: tuple[int, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    minibatches: int = 0


class TaskSet:
    """A set of task numbers that collapses neighbours into intervals [lo, hi).

    Raises
    ------
    ValueError
        If the bounds do not ascend or are not in pairs.
    """

    def __init__(self, bounds: Iterable[int] = ()) -> None:
        # lo, hi, lo, hi, ...: strictly ascending, so that a place's parity says whether it is inside.
        self._bounds = list(bounds)
        self._count = sum(self._bounds[1::2]) - sum(self._bounds[::2])
        if any(a >= b for a, b in pairwise(self._bounds)) or len(self._bounds) % 2:
            raise ValueError(f"task intervals are not ascending: {self._bounds}")

    def __contains__(self, task: int) -> bool:
        return bisect_right(self._bounds, task) % 2 == 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for lo, hi in zip(self._bounds[::2], self._bounds[1::2], strict=True):
            yield from range(lo, hi)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskSet) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TaskSet({self._bounds})"

    @property
    def bounds(self) -> tuple[int, ...]:
        return tuple(self._bounds)

    def add(self, task: int) -> None:
        if task in self:
            return
        left, right = bisect_left(self._bounds, task), bisect_left(self._bounds, task + 1)
        joins_left = left < len(self._bounds) and self._bounds[left] == task
        joins_right = right < len(self._bounds) and self._bounds[right] == task + 1
        if joins_left and joins_right:
            del self._bounds[left : right + 1]
        elif joins_left:
            self._bounds[left] = task + 1
        elif joins_right:
            self._bounds[right] = task
        else:
            self._bounds[left:left] = [task, task + 1]
        self._count += 1

    def discard(self, task: int) -> None:
        place = bisect_right(self._bounds, task)
        if place % 2 == 0:
            return
        lo, hi = self._bounds[place - 1 : place + 1]
        before, behind = [lo, task] if lo < task else [], [task + 1, hi] if task + 1 < hi else []
        self._bounds[place - 1 : place + 1] = before + behind
        self._count -= 1

    def first_missing(self, at_least: int = 0) -> int:
        """Return the smallest task number >= at_least that is not in the set."""
        place = bisect_right(self._bounds, at_least)
        return self._bounds[place] if place % 2 else at_least

    def missing(self, end: int) -> Iterator[int]:
        """Yield the task numbers below `end` that are not in the set, ascending."""
        task = self.first_missing()
        while task < end:
            yield task
            task = self.first_missing(task + 1)

    def intersection(self, other: "TaskSet") -> "TaskSet":
        bounds: list[int] = []
        a, b = self._bounds, other._bounds
        i = j = 0
        while i < len(a) and j < len(b):
            lo, hi = max(a[i], b[j]), min(a[i + 1], b[j + 1])
            if lo < hi:
                if bounds and bounds[-1] == lo:
                    bounds[-1] = hi
                else:
                    bounds += [lo, hi]
            if a[i + 1] < b[j + 1]:
                i += 2
            else:
                j += 2
        return TaskSet(bounds)


class Ledger:
    """Marks of the tasks in work, the finished tasks, and how many minibatches were applied in all."""

    def __init__(self, record: LedgerRecord | None = None) -> None:
        record = record or LedgerRecord()
        self.finished = TaskSet(record.finished)
        self.marks = dict(record.marks)  # unfinished tasks with at least one minibatch applied
        self.minibatches = record.minibatches

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.record() == other.record()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ledger(finished={self.finished}, marks={self.marks})"

    def mark(self, task: int) -> int:
        """Return how many minibatches of an unfinished task are applied; 0 for a finished one."""
        return self.marks.get(task, 0)

    def check(self, task: int, index: int) -> None:
        """Raise ValueError if a minibatch is not the next one of its task."""
        mark = self.marks.get(task, 0)
        if index != mark or (not mark and task in self.finished):  # a task with a mark is not finished
            raise ValueError(f"minibatch ({task}, {index}) is not next: {self}")

    def note(self, task: int, index: int, *, is_last: bool, is_empty: bool) -> None:
        """Enter one applied minibatch, or the empty one that only says that the task ends.

        Raises
        ------
        ValueError
            If the minibatch is not the next one of its task (invariant 1); nothing has changed.
        """
        self.check(task, index)
        if not is_empty:
            self.marks[task] = index + 1
            self.minibatches += 1
        if is_last:
            self.finished.add(task)
            self.marks.pop(task, None)

    def record(self) -> LedgerRecord:
        return LedgerRecord(
            finished=self.finished.bounds,
            marks=tuple(sorted(self.marks.items())),
            minibatches=self.minibatches,
        )

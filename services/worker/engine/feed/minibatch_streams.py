"""Which task's minibatches are next, in which stream, and from where on.

A lane is one stream of minibatches.  Tasks that follow one another share a lane, and its stream reads
ahead from one into the next; tasks that are worked on in turns (the slots of a synchronous step) are in
lanes of their own.  Any order of calls is right, the orderly one is fast.

Giving a task up means a new stream for its lane: 50 ms, and nothing of the old task in the way.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from edlz.services.errors import EdlzError, ModelError
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.engine.feed.feed import Feed, Stream
from edlz.services.worker.engine.feed.task_reader import Assignment
from edlz.services.worker.engine.user_code.user_code import (
    Blame,
    TaskError,
    UserCode,
    UserCodeError,
    definition,
)

__all__ = ["Lanes", "Minibatch"]

_TRIES = 3  # of tasks that must fail until a first minibatch is given up

_numbers = itertools.count(1)  # of assignments, in this process


@dataclass(frozen=True, slots=True)
class Minibatch:
    """One minibatch.  `element` is what the feed yields, as tensors; None for a task without minibatches."""

    task: int
    index: int
    is_last: bool
    element: Any


@dataclass(slots=True)
class _TaskInLane:
    """A task in a lane.  Invariant: `ahead`, if any, is minibatch `position`, the next to be handed out."""

    assignment: Assignment
    position: int
    end: int | None = None  # the first minibatch that must not be looked at
    ahead: Any = None
    is_started: bool = False  # its first minibatch has been looked for
    is_read: bool = False  # `ahead` is known to be its last one

    @property
    def task(self) -> int:
        return self.assignment.task


class Lanes:
    """The minibatches of all tasks in hand.

    Parameters
    ----------
    feed : Feed
    code : UserCode
    function : callable
        The user's feed, for messages.
    """

    def __init__(self, feed: Feed, code: UserCode, function: Callable[..., Any]) -> None:
        self._feed, self._code, self._function = feed, code, function
        self._lanes: list[_Lane] = []
        self._ranges: dict[int, TaskRange] = {}
        self._ends: dict[int, int | None] = {}
        self._lane_of: dict[int, _Lane] = {}
        # By task and index: the newest, which may be asked for again, and those behind it seen ahead of time.
        self._kept: dict[int, dict[int, Minibatch]] = {}

    def begin(
        self, task: int, records: TaskRange, lane: int = 0, first: int = 0, end: int | None = None
    ) -> None:
        """Take a task in hand: its records are read ahead, behind those of the lane's other tasks.

        Parameters
        ----------
        lane : int
            A small number; lanes are made as they are named.
        first : int
            The first minibatch that will be asked for.
        end : int, optional
            The first one that never will, as the user's code raises on it: none before it is the last.
        """
        if self.has(task):
            return
        self._ranges[task], self._ends[task] = records, end
        while len(self._lanes) <= lane:
            self._lanes.append(_Lane(self._feed))
        self._enter(task, self._lanes[lane], first)

    def has(self, task: int) -> bool:
        """Whether a task is in hand."""
        return task in self._ranges

    def minibatch(self, task: int, index: int) -> Minibatch:
        """Return minibatch (task, index) of a task in hand, waiting for it if need be.

        Raises
        ------
        TaskError
            If reading or the user's code raised, or the task ends before this minibatch.  The task is
            out of hand then.
        ModelError
            If the feed cannot work on any records.
        """
        found = self._kept.get(task, {}).get(index) or self._fetch(task, index)
        if found is None:
            self.drop(task)
            raise TaskError(
                task,
                index,
                f"feed() gave no minibatch {index}, but a run before got that far: it must be a function of "
                "the records alone",
                where=definition(self._function),
            )
        self._kept[task] = {i: kept for i, kept in self._kept[task].items() if i >= index}
        return found

    def ahead(self, task: int, index: int) -> Minibatch | None:
        """Return a minibatch that will be asked for later on, or None if the task ends before it.

        Those in between are kept as well: `minibatch` goes on from where it was.

        Raises
        ------
        TaskError, ModelError
            As `minibatch`.
        """
        kept = self._kept.get(task, {})
        if any(found.is_last and found.index < index for found in kept.values()):
            return None
        lane = self._lane_of.get(task)
        first = lane.position if lane is not None and lane.can_give(task, index) else index
        for i in range(first, index + 1):
            if i not in kept and self._fetch(task, i) is None:
                return None
        return self._kept[task][index]

    def first_element(self, tasks: Iterable[tuple[int, TaskRange]]) -> Any:
        """Return the first minibatch there is: a feed may leave all records of a task out, or raise on one of them.

        Raises
        ------
        TaskError
            As `minibatch`, of several tasks.
        ModelError
            If it leaves out every record of these tasks.
        """
        failures: list[TaskError] = []
        for task, records in tasks:
            self.begin(task, records)
            try:
                element = self.minibatch(task, 0).element
            except TaskError as error:
                failures.append(error)
                if len(failures) == _TRIES:
                    break
                continue
            finally:
                self.drop(task)
            if element is not None:
                return element
        if failures:
            raise failures[0]
        raise UserCodeError(
            "feed() leaves out every record of the data",
            "let it keep some: look at the condition of its filter()",
            where=self._code.place(self._function),
        )

    def drop(self, task: int) -> None:
        """Give a task up, whether in the middle or at its end; nothing happens if it is not in hand."""
        self._ranges.pop(task, None)
        self._ends.pop(task, None)
        self._kept.pop(task, None)
        self._leave(task)

    def close(self) -> None:
        """Give everything up."""
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        self._lane_of.clear()
        self._ranges.clear()
        self._ends.clear()
        self._kept.clear()

    def _fetch(self, task: int, index: int) -> Minibatch | None:
        """Take a minibatch from its lane and keep it; None if the task ends before it."""
        lane = self._lane_of.get(task)
        if lane is None or not lane.can_give(task, index):
            lane = self._move(task, index)
        try:
            with self._code.blaming(self._function):
                found = lane.give(index)
        except ModelError:  # on any records, not only on these
            self.drop(task)
            raise
        except Exception as e:
            index = lane.position  # looking ahead may have met it
            blamed = Blame() if isinstance(e, EdlzError) else self._feed.blame(lane.assignment)
            self.drop(task)
            raise self._code.task_error(task, index, e, self._function, blamed) from e
        if found is not None:
            self._kept.setdefault(task, {})[index] = found
        return found

    def _enter(self, task: int, lane: "_Lane", first: int) -> None:
        lane.add(task, self._ranges[task], first, self._ends[task])
        self._lane_of[task] = lane

    def _leave(self, task: int) -> None:
        lane = self._lane_of.pop(task, None)
        if lane is not None:
            lane.remove(task)

    def _move(self, task: int, first: int) -> "_Lane":
        """Begin a task again, from `first` on, in a lane where it is the only one."""
        self._leave(task)
        lane = next((lane for lane in self._lanes if lane.is_idle), None)
        if lane is None:
            lane = _Lane(self._feed)
            self._lanes.append(lane)
        self._enter(task, lane, first)
        return lane


@dataclass(slots=True)
class _Lane:
    """One stream and the tasks in it, the first of which is being handed out."""

    feed: Feed
    tasks: deque[_TaskInLane] = field(default_factory=deque)
    stream: Stream | None = None

    @property
    def is_idle(self) -> bool:
        return not self.tasks

    @property
    def assignment(self) -> Assignment:
        return self.tasks[0].assignment

    @property
    def position(self) -> int:
        """The minibatch that its first task hands out next."""
        return self.tasks[0].position

    def add(self, task: int, records: TaskRange, first: int, end: int | None) -> None:
        held = _TaskInLane(Assignment(next(_numbers), task, records, first), first, end)
        self.tasks.append(held)
        if self.stream is None:
            self.stream = self.feed.open()
        self.stream.start(held.assignment)

    def can_give(self, task: int, index: int) -> bool:
        return bool(self.tasks) and self.tasks[0].task == task and index >= self.tasks[0].position

    def give(self, index: int) -> Minibatch | None:
        """Hand out a minibatch of the first task; None if it ends before."""
        held = self.tasks[0]
        if not held.is_started:
            held.is_started = True
            self._look_ahead(held)
            if held.ahead is None:
                self.tasks.popleft()
                # A task without any minibatch still has an end, which somebody must push.
                return Minibatch(held.task, 0, True, None) if index == 0 else None
        while held.ahead is not None:
            position, element = held.position, held.ahead
            held.position += 1
            is_last = self._is_last(held)
            if position == index:
                return Minibatch(held.task, index, is_last, element)
        return None

    def _is_last(self, held: _TaskInLane) -> bool:
        """Whether the task ends with the minibatch before `held.position`; then it leaves the lane."""
        if held.position == held.end:
            held.ahead = None
            self.remove(held.task)  # with all that the stream has read of it
            return False
        is_over = self._look_ahead(held)
        if is_over:
            self.tasks.popleft()
        return is_over

    def remove(self, task: int) -> None:
        held = next((held for held in self.tasks if held.task == task), None)
        if held is not None:
            self.tasks.remove(held)
            self._restart()

    def close(self) -> None:
        self.tasks.clear()
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def _look_ahead(self, held: _TaskInLane) -> bool:
        """Fetch the next minibatch; return whether there was none left."""
        assert self.stream is not None
        found = self.stream.next(held.assignment) if not held.is_read else None
        if found is None:
            held.ahead = None
            return True
        place, held.ahead, held.is_read = found
        assert place == held.position, f"minibatch {place} came for {held.position}"
        return False

    def _restart(self) -> None:
        """Begin a new stream with the tasks that are left, each from where it was."""
        tasks = list(self.tasks)
        self.close()
        for held in tasks:
            self.add(held.task, held.assignment.records, held.position, held.end)

"""What a worker has in hand: the leased training tasks, and where each stands."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from edlz.services.protocol.messages import NO_IDENTITY, DoneTask, Exchanged, FailedTask, Identity, RowIds
from edlz.services.protocol.plan import Plan, TaskRange
from edlz.services.transitions import Transitions
from edlz.services.worker.core.instructions import Begin, Outcome

__all__ = ["BACK_OFF_MAX_S", "BACK_OFF_S", "HELD_BACK_OFF_S", "HeldTask", "HeldTasks", "Phase", "Wait"]

BACK_OFF_S, BACK_OFF_MAX_S = 0.1, 1.0
HELD_BACK_OFF_S, HELD_BACK_OFF_MAX_S = 0.2, 2.0
WAITING_S = 2.0  # a worker that waits for longer is not just asking for its next values


class Phase(Enum):
    """Where a held task stands."""

    QUEUED = "queued"  # in hand, not begun
    BACKING_OFF = "backing off"  # begins again at a time
    LOOKING = "looking"  # finds out which rows its minibatch needs
    PULLING = "pulling"  # asked all partitions
    READY = "ready"  # index and version are known
    COMPUTING = "computing"
    HELD_BACK = "held back"  # sync: computed, and its barrier is not passed yet
    PUSHING = "pushing"  # sent a push without a pull
    STAGED = "staged"  # sync: staged everywhere, another task of this worker will see the commit
    REPORTING = "reporting"  # finished on all partitions

    __hash__ = object.__hash__  # Enum's own is written in Python, and this is a key several times a minibatch


STEPS = Transitions(
    "a task",
    Phase.QUEUED,
    {
        Phase.QUEUED: {Phase.LOOKING, Phase.PULLING},
        Phase.LOOKING: {Phase.PULLING, Phase.HELD_BACK},
        Phase.PULLING: {Phase.READY, Phase.REPORTING, Phase.BACKING_OFF, Phase.LOOKING, Phase.PULLING},
        Phase.READY: {Phase.COMPUTING, Phase.PUSHING, Phase.BACKING_OFF, Phase.LOOKING, Phase.PULLING},
        Phase.COMPUTING: {Phase.PUSHING, Phase.HELD_BACK, Phase.BACKING_OFF, Phase.LOOKING, Phase.PULLING},
        Phase.HELD_BACK: {Phase.PUSHING, Phase.LOOKING, Phase.PULLING},
        Phase.PUSHING: {Phase.STAGED, Phase.REPORTING, Phase.BACKING_OFF, Phase.LOOKING, Phase.PULLING},
        Phase.STAGED: {Phase.READY, Phase.REPORTING, Phase.LOOKING, Phase.PULLING},
        Phase.BACKING_OFF: {Phase.LOOKING, Phase.PULLING},
        Phase.REPORTING: {Phase.PULLING},
    },
)

# Phases in which a field says something; a task that enters another one forgets it.
_AFTER_PULL = {Phase.PULLING, Phase.READY, Phase.COMPUTING, Phase.HELD_BACK, Phase.PUSHING}
LASTING: dict[str, set[Phase]] = {
    "answers": _AFTER_PULL,  # but each pull begins without any
    "ahead": _AFTER_PULL,
    "acks": {Phase.PUSHING},
    "pause": {Phase.BACKING_OFF},
    "result": {Phase.HELD_BACK},
}


@dataclass(frozen=True)
class Pause:
    """Why a task waits, and until when.

    Attributes
    ----------
    are_pushes_held : bool
        Async: some partition takes no pushes of it for now.
    is_lost : bool
        Which minibatch is next is not known any more.
    """

    until_s: float
    are_pushes_held: bool = False
    is_lost: bool = False


@dataclass
class HeldTask:
    """One leased training task.  `attempt` makes answers to abandoned requests recognisable."""

    task: int
    attempt: int
    lane: int
    learning_rate: float | None = None  # what callbacks have set, in place of the model's
    is_barred: bool = False  # sync: the barrier before it is not passed yet
    result: Outcome | FailedTask | None = None  # what has come of its minibatch meanwhile
    end_at: int | None = None  # the master has ended the task before this minibatch
    records: TaskRange | None = None  # if the plan does not say them
    phase: Phase = Phase.QUEUED
    index: int = 0
    version: int = 0
    snapshot_at: int = 0
    checkpoint_at: int = 0
    is_last: bool = False
    answers: dict[int, Exchanged] = field(default_factory=dict)  # to the pull under way
    acks: set[int] = field(default_factory=set)
    incarnations: dict[int, Identity] = field(default_factory=dict)
    pause: Pause | None = None
    back_off_s: float = BACK_OFF_S  # of the next pause
    # Rows (of a model with embedding tables), by minibatch: None for one that the task does not have.
    ids: dict[int, tuple[RowIds, ...] | None] = field(default_factory=dict)
    asked: int | None = None  # the minibatch whose rows the pull under way brings; None for a probe
    wants_vectors: bool = True  # whether the pull under way brings vectors too
    ahead: dict[int, dict[int, Exchanged]] = field(default_factory=dict)  # async: answers to earlier pulls

    def end(self, end_at: int) -> None:
        """The task ends before this minibatch; nothing has to be looked up for that."""
        self.end_at = end_at
        self.ids[end_at] = None

    def begun(self) -> list[Begin]:
        """Have its records read ahead, if there are any."""
        if self.records is not None and not self.records.count:
            return []
        return [Begin(self.task, self.lane, self.end_at, self.records)]

    def may_end(self, outcome: Outcome) -> bool:
        """Whether the task may end by this minibatch, and not only by the empty one where the master ends it."""
        return self.end_at is None or outcome.is_empty or self.index + 1 < self.end_at

    @property
    def is_ended(self) -> bool:
        """Whether the task ends before the minibatch in work."""
        return self.end_at is not None and self.index >= self.end_at

    def looks_ahead_to(self, index: int) -> int | None:
        """Return a later minibatch whose rows are worth knowing, unless the task has been ended before it."""
        return None if self.end_at is not None and index >= self.end_at else index

    # -- phases

    def enter(self, phase: Phase) -> None:
        """Go on to a phase, and forget what says nothing in it.

        Raises
        ------
        LocalProtocolError
            If it cannot follow the present one; nothing has changed.
        """
        forgotten = _FORGOTTEN[self.phase].get(phase)
        if forgotten is None:
            STEPS.check(self.phase, phase)
            return
        self.phase = phase
        for name, make_empty in forgotten:
            setattr(self, name, make_empty())

    def abandon(self, phase: Phase, attempt: int) -> None:
        """Go to a phase and forget what was under way, and what it would bring."""
        self.enter(phase)
        self.attempt, self.incarnations, self.ahead = attempt, {}, {}

    def back_off(self, attempt: int, now: float, *, are_pushes_held: bool, is_lost: bool) -> None:
        """Forget what was under way, and ask a little later."""
        shortest, longest = (
            (HELD_BACK_OFF_S, HELD_BACK_OFF_MAX_S) if are_pushes_held else (BACK_OFF_S, BACK_OFF_MAX_S)
        )
        wait_s = max(self.back_off_s, shortest)
        self.abandon(Phase.BACKING_OFF, attempt)
        self.pause = Pause(now + wait_s, are_pushes_held, is_lost)
        self.back_off_s = min(wait_s * 2, longest)

    @property
    def are_pushes_held(self) -> bool:
        """Whether it waits until some partition takes pushes of it again."""
        return self.pause is not None and self.pause.are_pushes_held

    # -- rows

    def note_ids(self, index: int, ids: tuple[RowIds, ...] | None) -> None:
        """Remember which rows a minibatch needs, and forget those before the one in work."""
        self.ids[index] = ids
        for old in [i for i in self.ids if i < self.index]:
            del self.ids[old]

    def ends_before(self, index: int) -> bool:
        """Whether the task is known to have no such minibatch."""
        return index in self.ids and self.ids[index] is None

    def check_invariants(self) -> None:
        """Assert that nothing is kept of phases that are over."""
        assert (self.pause is None) == (self.phase is not Phase.BACKING_OFF), f"task {self.task} pauses"
        for name, phases in LASTING.items():
            assert self.phase in phases or not getattr(self, name), f"{name} of {self}"

    def done(self, era: Identity, partitions: int) -> DoneTask:
        """What the master is told of a task that all partitions have finished."""
        lives = tuple(self.incarnations.get(p, NO_IDENTITY) for p in range(partitions))
        return DoneTask(task=self.task, era=era, incarnations=lives)


_EMPTY: dict[str, Callable[[], object]] = {
    "answers": dict,
    "ahead": dict,
    "acks": set,
    "pause": lambda: None,
    "result": lambda: None,
}


def _forgotten(before: Phase, after: Phase) -> tuple[tuple[str, Callable[[], object]], ...]:
    """Which fields that say something in one phase say nothing at the beginning of another, and what stands there."""
    names = [
        name
        for name, phases in LASTING.items()
        if before in phases and (after not in phases or (name, after) == ("answers", Phase.PULLING))
    ]
    return tuple((name, _EMPTY[name]) for name in names)


_FORGOTTEN = {
    before: {after: _forgotten(before, after) for after in following}
    for before, following in STEPS.after.items()
}


class HeldTasks:
    """All tasks that a worker holds, in the order in which they were taken.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tasks: dict[int, HeldTask] = {}
        self._attempts = itertools.count(1)

    def __iter__(self) -> Iterator[HeldTask]:
        """Yield all tasks; meanwhile they may be dropped."""
        return iter(list(self._tasks.values()))

    def get(self, task: int) -> HeldTask | None:
        return self._tasks.get(task)

    @property
    def tasks(self) -> tuple[int, ...]:
        return tuple(self._tasks)

    # -- changes

    def new_attempt(self) -> int:
        """Return a number that no attempt at any task has had."""
        return next(self._attempts)

    def take(self, task: int) -> HeldTask:
        """Take a task in hand.  Tasks that follow one another share a lane: one stream of records."""
        is_later = self._plan.is_later_round if self._plan.is_sync else lambda task, than: True
        used = {held.lane for held in self if not is_later(task, held.task)}
        lane = next(lane for lane in itertools.count() if lane not in used)
        held = self._tasks[task] = HeldTask(task, self.new_attempt(), lane)
        return held

    def drop(self, task: int) -> HeldTask | None:
        return self._tasks.pop(task, None)

    # -- questions

    @property
    def are_held_back(self) -> bool:
        """Whether nothing is to be done with any of them before a barrier is passed; so it is of none."""
        return all(held.phase is Phase.HELD_BACK for held in self)

    @property
    def active(self) -> list[HeldTask]:
        """Those that have begun, and are not finished everywhere."""
        return [held for held in self if held.phase not in (Phase.QUEUED, Phase.REPORTING)]

    @property
    def computing(self) -> HeldTask | None:
        return next((held for held in self if held.phase is Phase.COMPUTING), None)

    @property
    def wants_task(self) -> bool:
        """Whether there is room for another task.

        A worker whose pushes are all held needs no rule of its own: it begins what is queued, and then has room.
        """
        if self._wait_for_slots:
            return True  # perhaps nobody has them
        active, is_sync = self.active, self._plan.is_sync
        queued = sum(held.phase is Phase.QUEUED for held in self)
        return queued < max(1, len(active) if is_sync else 1)

    @property
    def are_waiting(self) -> bool:
        """Whether all that have begun wait for others: slots of their step, or a partition that takes no pushes."""
        active = self.active
        return self._wait_for_slots or (bool(active) and all(held.are_pushes_held for held in active))

    @property
    def _wait_for_slots(self) -> bool:
        active, waiting = self.active, (Phase.PULLING, Phase.STAGED, Phase.HELD_BACK)
        return self._plan.is_sync and bool(active) and all(held.phase in waiting for held in active)

    def of_earliest_round(self) -> list[HeldTask]:
        """Sync: return the tasks of the earliest round in hand that is not finished everywhere."""
        unfinished = [held for held in self if held.phase is not Phase.REPORTING]
        if not unfinished:
            return []
        tasks = self._plan.round_tasks(min(held.task for held in unfinished))
        return [held for held in unfinished if held.task in tasks]

    def of_step(self, held: HeldTask) -> Iterator[HeldTask]:
        """Sync: yield the tasks in the same step of the same round, this one among them."""
        for other in self:
            if other.version == held.version and self._plan.is_same_round(other.task, held.task):
                yield other

    # -- checks

    def check_invariants(self) -> None:
        computing = [held.task for held in self if held.phase is Phase.COMPUTING]
        assert len(computing) <= 1, f"computing {computing} at once"
        for held in self:
            held.check_invariants()


class Wait:
    """How long all that has begun has waited for others.

    Parameters
    ----------
    held : HeldTasks
    """

    def __init__(self, held: HeldTasks) -> None:
        self._held = held
        self._at: tuple[int, tuple[int, ...]] = (0, ())  # how far the worker was, with what in hand,
        self._since_s = self._lasts_s = 0.0  # when it began to wait, and how long it has

    def note(self, steps: int, now: float) -> None:
        """Time has passed; so many minibatches were pushed."""
        if self._at != (steps, self._held.tasks) or not self._held.are_waiting:
            self._at, self._since_s = (steps, self._held.tasks), now
        self._lasts_s = now - self._since_s

    def is_long(self, steps: int) -> bool:
        """Whether it has lasted for a while, and still does."""
        return self._lasts_s >= WAITING_S and self._at == (steps, self._held.tasks)

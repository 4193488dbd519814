"""What a worker has in hand: a run for each leased training task."""

from dataclasses import dataclass, field
from enum import Enum

from edlz.services.messages import NO_IDENTITY, DoneTask, Exchanged, Identity, RowIds

__all__ = ["BACK_OFF_MAX_S", "BACK_OFF_S", "HELD_BACK_OFF_S", "Phase", "Run"]

BACK_OFF_S, BACK_OFF_MAX_S = 0.1, 1.0
HELD_BACK_OFF_S, HELD_BACK_OFF_MAX_S = 0.2, 2.0


class Phase(Enum):
    """Where a run stands."""

    QUEUED = "queued"  # in hand, not begun
    BACKING_OFF = "backing off"  # begins again at a time
    LOOKING = "looking"  # finds out which rows its minibatch needs
    PULLING = "pulling"  # asked all partitions
    READY = "ready"  # index and version are known
    COMPUTING = "computing"
    PUSHING = "pushing"  # sent a push without a pull
    STAGED = "staged"  # sync: staged everywhere, another run of this worker will see the commit
    REPORTING = "reporting"  # finished on all partitions


@dataclass
class Run:
    """One leased training task.  `attempt` makes answers to abandoned requests recognisable."""

    task: int
    attempt: int
    lane: int
    end_at: int | None = None  # the master has ended the task before this minibatch
    phase: Phase = Phase.QUEUED
    index: int = 0
    version: int = 0
    snapshot_at: int = 0
    checkpoint_at: int = 0
    is_last: bool = False
    is_held: bool = False  # async: some partition takes no pushes of it for now
    is_lost: bool = False  # which minibatch is next is not known any more
    answers: dict[int, Exchanged] = field(default_factory=dict)  # to the pull under way
    acks: set[int] = field(default_factory=set)
    incarnations: dict[int, Identity] = field(default_factory=dict)
    resume_s: float = 0.0
    back_off_s: float = BACK_OFF_S
    # Rows (of a model with embedding tables), by minibatch: None for one that the task does not have.
    ids: dict[int, tuple[RowIds, ...] | None] = field(default_factory=dict)
    asked: int | None = None  # the minibatch whose rows the pull under way brings; None for a probe
    wants_vectors: bool = True  # whether the pull under way brings vectors too
    ahead: dict[int, dict[int, Exchanged]] = field(default_factory=dict)  # async: answers to earlier pulls

    def end(self, end_at: int) -> None:
        """The task ends before this minibatch; nothing has to be looked up for that."""
        self.end_at = end_at
        self.ids[end_at] = None

    def looks_ahead_to(self, index: int) -> int | None:
        """Return a later minibatch whose rows are worth knowing, unless the task has been ended before it."""
        return None if self.end_at is not None and index >= self.end_at else index

    def begin_pull(self, attempt: int) -> None:
        """Forget what was under way, and ask where the partitions stand."""
        self.attempt, self.phase = attempt, Phase.PULLING
        self.answers, self.acks, self.incarnations, self.ahead = {}, set(), {}, {}
        self.is_held = self.is_lost = False

    def back_off(self, attempt: int, now: float, *, is_held: bool) -> None:
        """Forget what was under way, and ask a little later."""
        self.attempt, self.phase, self.is_held = attempt, Phase.BACKING_OFF, is_held
        shortest, longest = (
            (HELD_BACK_OFF_S, HELD_BACK_OFF_MAX_S) if is_held else (BACK_OFF_S, BACK_OFF_MAX_S)
        )
        self.back_off_s = max(self.back_off_s, shortest)
        self.resume_s = now + self.back_off_s
        self.back_off_s = min(self.back_off_s * 2, longest)

    def note_ids(self, index: int, ids: tuple[RowIds, ...] | None) -> None:
        """Remember which rows a minibatch needs, and forget those before the one in work."""
        self.ids[index] = ids
        for old in [i for i in self.ids if i < self.index]:
            del self.ids[old]

    def ends_before(self, index: int) -> bool:
        """Whether the task is known to have no such minibatch."""
        return index in self.ids and self.ids[index] is None

    def done(self, era: Identity, partitions: int) -> DoneTask:
        """What the master is told of a run that all partitions have finished."""
        lives = tuple(self.incarnations.get(p, NO_IDENTITY) for p in range(partitions))
        return DoneTask(task=self.task, era=era, incarnations=lives)

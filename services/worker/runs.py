"""What a worker has in hand: a run for each leased training task."""

from dataclasses import dataclass, field
from enum import Enum

from edlz.services.messages import NO_IDENTITY, DoneTask, Exchanged, Identity

__all__ = ["BACK_OFF_MAX_S", "BACK_OFF_S", "Phase", "Run"]

BACK_OFF_S, BACK_OFF_MAX_S = 0.1, 1.0


class Phase(Enum):
    """Where a run stands."""

    QUEUED = "queued"  # in hand, not begun
    BACKING_OFF = "backing off"  # begins again at a time
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
    phase: Phase = Phase.QUEUED
    index: int = 0
    version: int = 0
    snapshot_at: int = 0
    is_last: bool = False
    answers: dict[int, Exchanged] = field(default_factory=dict)
    acks: set[int] = field(default_factory=set)
    incarnations: dict[int, Identity] = field(default_factory=dict)
    resume_s: float = 0.0
    back_off_s: float = BACK_OFF_S

    def begin_pull(self, attempt: int) -> None:
        """Forget what was under way, and ask where the partitions stand."""
        self.attempt, self.phase = attempt, Phase.PULLING
        self.answers, self.acks, self.incarnations = {}, set(), {}

    def back_off(self, attempt: int, now: float) -> None:
        """Forget what was under way, and ask a little later."""
        self.attempt, self.phase = attempt, Phase.BACKING_OFF
        self.resume_s = now + self.back_off_s
        self.back_off_s = min(self.back_off_s * 2, BACK_OFF_MAX_S)

    def done(self, era: Identity, partitions: int) -> DoneTask:
        """What the master is told of a run that all partitions have finished."""
        lives = tuple(self.incarnations.get(p, NO_IDENTITY) for p in range(partitions))
        return DoneTask(task=self.task, era=era, incarnations=lives)

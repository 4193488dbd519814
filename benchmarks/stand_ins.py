"""Stand-ins for the workers and partitions of a job in virtual time: what they hold, and what they say of it."""

from dataclasses import dataclass, field
from typing import Literal

from edlz.services.protocol.ledger import Ledger
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    DoneTask,
    Granted,
    Identity,
    PartitionOrders,
    PartitionStatus,
    WorkerStatus,
)
from edlz.services.protocol.plan import Plan

__all__ = ["RUN", "Partitions", "TaskState", "Work", "Worker"]

RUN = "1"  # of the job

# A task in hand: not begun; held by the partitions, or its gradient is with them; to be computed; reported.
TaskState = Literal["queued", "waiting", "ready", "done"]


@dataclass(frozen=True)
class Work:
    """What a worker computes: a task from some minibatch on (asynchronous mode), or a minibatch."""

    task: int
    since_s: float
    step_s: float
    index: int

    def reached(self, now: float) -> int:
        """Return how many minibatches of the task have been computed."""
        return self.index + int((now - self.since_s) / self.step_s)


@dataclass(eq=False)
class Worker:
    """A worker, by its id."""

    name: str
    incarnation: Identity | None = None
    era: Identity = NO_IDENTITY
    seq: int = 0
    in_hand: dict[int, TaskState] = field(default_factory=dict)
    work: "Work | None" = None
    steps: int = 0
    address_list: Identity = NO_IDENTITY
    next_status_s: float = 0.0
    is_up: bool = True

    def tasks(self, *states: TaskState) -> list[int]:
        return [task for task, state in self.in_hand.items() if state in states]

    def wants_task(self, *, is_sync: bool) -> bool:
        """As worker/training.py has it."""
        if self.incarnation is None:
            return False
        waiting, ready = len(self.tasks("waiting")), len(self.tasks("ready"))
        if is_sync and waiting and not ready:
            return True
        return len(self.tasks("queued")) < max(1, waiting + ready if is_sync else 1)

    def status(self, lives: tuple[Identity, ...], *, is_sync: bool) -> WorkerStatus:
        """Return the next status, with the partitions' lives that each done task was finished in."""
        self.seq += 1
        done = [DoneTask(task=task, era=self.era, incarnations=lives) for task in self.tasks("done")]
        return WorkerStatus(
            run=RUN,
            worker=self.name,
            boot=int(self.name),
            incarnation=self.incarnation,
            seq=self.seq,
            era=self.era,
            holding=tuple(self.in_hand),
            done=tuple(done),
            wants_task=self.wants_task(is_sync=is_sync),
            steps=self.steps,
            address_list=self.address_list,
        )


class Partitions:
    """What the partitions say of themselves, all of them the same."""

    def __init__(self, plan: Plan, count: int) -> None:
        self._plan, self.ledger = plan, Ledger()
        self.lives: list[Identity | None] = [None] * count
        self.known_lives: tuple[Identity, ...] = ()
        self._eras: list[Identity | None] = [None] * count
        self._has_told = [False] * count
        self._is_sealing = [False] * count
        self._seq = 0
        self.version = 0  # sync; in asynchronous mode each minibatch makes one
        self.term = 0

    def status(self, index: int) -> PartitionStatus:
        self._seq += 1
        ledger, life = self.ledger, self.lives[index]
        return PartitionStatus(
            run=RUN,
            partition=index,
            boot=-1 - index,
            incarnation=life,
            seq=self._seq,
            term=self.term,
            endpoint=f"tcp://10.0.0.{index}:50001",
            era=self._eras[index],
            version=self.version or ledger.minibatches,
            has_base=True,
            ledger=None if self._has_told[index] else ledger.record(),
            finished_tasks=len(ledger.finished),
            minibatches=ledger.minibatches,
            open_minibatches=0,
            snapshots=((NO_IDENTITY, 0),),
            is_sealed=self._is_sealing[index] and len(ledger.finished) == self._plan.task_count,
        )

    def on_answer(self, index: int, answer: Message) -> None:
        if isinstance(answer, Granted):
            self.term, self.lives[index] = answer.term, answer.incarnation
            self.known_lives = tuple(life for life in self.lives if life is not None)
            return
        assert isinstance(answer, PartitionOrders)
        self._has_told[index] = answer.era == self._eras[index]
        self._eras[index], self._is_sealing[index] = answer.era, answer.seal

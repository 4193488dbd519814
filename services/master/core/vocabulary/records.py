"""What the core of the master keeps of the journal, of each worker and of each partition."""

from dataclasses import dataclass, field
from typing import Self

from edlz.services.protocol.concluded_rounds import CallbackBeginning, CallbackNeeds, ConcludedRound
from edlz.services.protocol.curves import CurveEnd, CurveRow
from edlz.services.protocol.growing_plan import Piece
from edlz.services.protocol.job_status import EventView, FailureView, JobStatus
from edlz.services.protocol.ledger import LedgerRecord, TaskSet
from edlz.services.protocol.messages import (
    EvaluationLease,
    ExportReport,
    ExportWish,
    Identity,
    PartitionStatus,
    WorkerOrders,
    WorkerStatus,
)

__all__ = [
    "Added",
    "FleetRecord",
    "GivenUp",
    "JournalState",
    "LossRecord",
    "PartitionEntry",
    "PredictedTask",
    "WorkerEntry",
]


@dataclass(frozen=True)
class FleetRecord:
    """Which workers should run; see `DesiredProcesses`.  `asked`: how many the job's settings asked for by then."""

    asked: int
    target: int
    next_id: int
    crew: tuple[int, ...] = ()
    lost: int = 0
    vain: tuple[tuple[str, int], ...] = ()  # by name: how many before it ended without any progress
    given_up: tuple[tuple[str, str], ...] = ()  # workers that are not replaced, and why


@dataclass(frozen=True)
class LossRecord:
    """Losses that are NaN or infinite; see `NonFiniteLosses`.  `counts`: (worker, boot, minibatches)."""

    first: tuple[int, int] | None = None
    counts: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class PredictedTask:
    """A task whose predictions have been delivered; `bytes` and `checksum` of its file, if it has one."""

    task: int
    records: int
    bytes: int = 0
    checksum: str = ""


@dataclass(frozen=True)
class Added:
    """Values that come behind those that a fact of the journal has: `first` is how many these are."""

    first: int
    values: tuple[object, ...]


@dataclass(frozen=True)
class JournalState:
    """What an earlier master left; a new job has term 0."""

    term: int = 0
    is_complete: bool = False
    digest: str = ""
    evaluations: tuple[tuple[int, dict[str, float]], ...] = ()
    saved: int = -1  # version of the checkpoint that an orderly stop has taken; -1 for none
    fleet: FleetRecord | None = None
    ends: tuple[tuple[int, int], ...] = ()  # (task, index): bad tasks, and where they end
    skipped_evaluations: tuple[int, ...] = ()  # evaluation tasks that count as no records
    losses: LossRecord | None = None
    refusal: FailureView | None = None  # a mistake that the check of the model has found: nobody tries again
    vain_terms: int = 0  # masters in a row that have achieved nothing; see `VainTerms`
    final: JobStatus | None = None  # of a complete job
    launch: str = ""  # which start of the job its last master belonged to: see JobConfig.launch_id
    has_ended: bool = False  # the master of a complete job has left by itself
    predicted: tuple[PredictedTask, ...] = ()
    began: float = 0.0  # when the job was planned, in seconds since the epoch; 0 if an earlier version did
    events: tuple[EventView, ...] = ()  # the newest, for display
    curves: tuple[tuple[CurveRow, ...], ...] = ()  # in chunks, for display
    curve_end: CurveEnd | None = None
    page_port: int = 0  # of the status page: whoever looks at it asks there again
    export_wish: ExportWish | None = None  # of the model's callbacks()
    exported: ExportReport | None = None
    callbacks: CallbackNeeds | None = None  # of the model: before the first lease
    callbacks_begin: CallbackBeginning = field(default_factory=CallbackBeginning)
    rounds: tuple[ConcludedRound, ...] = ()  # the barriers passed, with what callbacks decided there
    task_count: int = 0  # the job ends behind so many tasks; 0: the plan's
    pieces: tuple[Piece, ...] = ()  # what the plan has got since


@dataclass
class WorkerEntry:
    """A live worker, by its newest incarnation."""

    incarnation: Identity
    seq: int
    seen_s: float
    answer: WorkerOrders
    holding: tuple[int, ...]
    steps: int
    has_asked: bool
    busy_s: float = 0.0
    longest_s: float = 0.0
    is_starting: bool = False
    evaluating: tuple[tuple[int, int], ...] = ()  # (round, task)
    exporting: str = ""  # the digest of a model
    computing: tuple[int, int] | None = None  # the minibatch that a careful member has in work
    steps_before: dict[int, int] = field(default_factory=dict)  # by task in hand: its steps when it took it

    @classmethod
    def of(cls, status: WorkerStatus, before: Self | None, answer: WorkerOrders, seen_s: float) -> Self:
        """Return a worker's newest word, with what the answer to it gives; `before`: the word before of the same life."""
        assert status.incarnation is not None
        holding = status.holding + ((answer.lease.task,) if answer.lease else ())
        steps_before = before.steps_before if before else {}
        return cls(
            incarnation=status.incarnation,
            seq=status.seq,
            seen_s=seen_s,
            answer=answer,
            holding=holding,
            steps=status.steps,
            has_asked=status.wants_task or (before is not None and before.has_asked),
            busy_s=status.busy_s,
            longest_s=status.longest_s,
            is_starting=status.is_starting,
            evaluating=_with_lease(status.evaluating, answer.evaluation),
            exporting=answer.export.digest if answer.export else status.exporting,
            computing=None if status.member is None else status.member.computing,
            steps_before={task: steps_before.get(task, status.steps) for task in holding},
        )


def _with_lease(
    held: tuple[tuple[int, int], ...], lease: EvaluationLease | None
) -> tuple[tuple[int, int], ...]:
    return held if lease is None else (*held, (lease.round, lease.task))


@dataclass(frozen=True)
class GivenUp:
    """A process that runs, as far as is known, but does nothing: another one is started in its place.

    `is_unreachable`: its machine does not answer, so that it was taken away.
    """

    name: str
    reason: str
    is_unreachable: bool = False


@dataclass
class PartitionEntry:
    """A partition's newest status, and its last full ledger in that life and era."""

    status: PartitionStatus
    ledger: LedgerRecord = field(default_factory=LedgerRecord)

    @property
    def finished(self) -> TaskSet:
        return TaskSet(self.ledger.finished)

"""What a job's status tells a viewer: the screens, `edlz status`, the last word in the job's folder.

Times are seconds; like shares they are finite, for screens round them.  It evolves as every message does: new
fields have defaults and stand at the end.
"""

from typing import Literal

from edlz.services.protocol.message_types import Finite, Message, Record

__all__ = [
    "FINAL_STATES",
    "MISTAKE",
    "EvaluationView",
    "EventView",
    "ExportView",
    "FailureView",
    "JobState",
    "JobStatus",
    "MasterState",
    "PartitionView",
    "StatusRequest",
    "TableView",
    "WorkerView",
    "events_before",
]

FINAL_STATES = frozenset(("Succeeded", "Failed", "Stopped"))
MISTAKE = 2  # the exit code of what the user has to correct before anything can run

MasterState = Literal[
    "Starting",
    "Training",
    "Evaluating",
    "Exporting",
    "Predicting",
    "Analyzing",
    "Stopping",
    "Succeeded",
    "Failed",
    "Stopped",
]
"""What a master says of its job."""

JobState = Literal[
    "Pending",
    MasterState,
    "Unknown",  # never a master's word: its cluster does not answer
]


def events_before(term: int) -> int:
    """Return a number that is below those of a master's events, and not below those of earlier masters'."""
    return term << 20


class StatusRequest(Message, frozen=True, kw_only=True, tag=42):
    """Any viewer -> master; answered by JobStatus.  `since`: the last event seen."""

    since: int = 0


class WorkerView(Record, frozen=True, kw_only=True):
    """A worker, as screens show it; milliseconds are means of its newest minibatches."""

    id: str
    state: str
    task: int | None = None
    records_per_s: float = 0.0
    read_ms: float = 0.0
    pull_ms: float = 0.0
    compute_ms: float = 0.0
    push_ms: float = 0.0
    wait_ms: float = 0.0
    memory_bytes: int = 0
    note: str = ""
    started_at: Finite = 0.0  # seconds since the epoch, where its pod tells it; 0 otherwise
    joined_at: Finite = 0.0  # when this master heard its present life first; 0: not yet
    restarts: int = 0  # lives of it before, of which this master knows
    rank: int | None = None  # among those that train together now, in an all-reduce job
    sum_ms: float = 0.0  # of a member: adding up, dividing and applying; then `push_ms` is for sending parts
    step_bytes_in: float = 0.0  # of a member, from and to the others, by its own minibatches
    step_bytes_out: float = 0.0

    def times_ms(self, *, is_member: bool) -> dict[str, float]:
        """Return what a step's time goes to, by name: of a worker with parameter servers, or of a member of a group."""
        if is_member:
            exchange = {"compute": self.compute_ms, "send": self.push_ms, "sum": self.sum_ms}
        else:
            exchange = {"pull": self.pull_ms, "compute": self.compute_ms, "push": self.push_ms}
        return {"read": self.read_ms, **exchange, "wait": self.wait_ms}


class TableView(Record, frozen=True, kw_only=True):
    """An embedding table over all partitions; `hit_rate`: share of the rows read that had been trained."""

    path: str
    rows: int
    memory_bytes: int
    hit_rate: Finite | None = None
    new_rows_per_s: float = 0.0


class PartitionView(Record, frozen=True, kw_only=True):
    """A parameter server, as screens show it."""

    id: str
    state: str
    version: int
    memory_bytes: int = 0
    cpu_share: float = 0.0
    rows: int = 0
    expected: int = 0  # minibatches that should be in its state by now, and those that are: see Recount
    applied: int = 0
    missing: int = 0
    doubled: int = 0
    note: str = ""
    requests_per_s: float = 0.0
    p99_s: Finite | None = None  # within which 99 of 100 requests were worked on


class ExportView(Record, frozen=True, kw_only=True):
    """Where the finished model lies; `tables`: of each path, rows, values of a row."""

    place: str
    size_bytes: int
    formats: tuple[str, ...] = ()
    tables: tuple[tuple[str, int, int], ...] = ()
    signatures: tuple[str, ...] = ()


class EventView(Record, frozen=True, kw_only=True):
    """Something that has happened, at seconds since the epoch; each has the number after that of the one before."""

    seq: int
    at: Finite
    kind: str
    text: str


class EvaluationView(Record, frozen=True, kw_only=True):
    """The metrics of a model version."""

    version: int
    metrics: dict[str, float]


class FailureView(Record, frozen=True, kw_only=True):
    """The first cause of a failed job."""

    text: str  # 'task 63 raised the same error 3 times (workers 0, 1, 0)'
    data: str = ""
    where: str = ""
    error: str = ""
    help: str = ""
    traceback: str = ""
    exit_code: int = 1
    task: int | None = None  # the training task that failed
    process: str = ""  # whose end it was: what that said last may tell more
    source: str = ""  # the line at `where`, if who has seen it has sent it


class JobStatus(Message, frozen=True, kw_only=True, tag=43):
    """What a screen shows of the job; times in seconds."""

    name: str
    state: JobState
    mode: Literal["sync", "async"]
    slots: int
    started_at: Finite
    now: Finite
    ratio: Finite = 0.0
    epoch: int = 0
    epochs: int = 0  # none of a job that only evaluates
    records: int = 0
    records_total: int = 0
    minibatches: int = 0
    minibatches_total: int = 0
    version: int = 0
    records_per_s: Finite = 0.0
    eta_s: Finite | None = None
    stalled_s: Finite | None = None
    loss: float | None = None
    tasks_done: int = 0
    tasks_total: int = 0
    evaluations: tuple[EvaluationView, ...] = ()
    workers: tuple[WorkerView, ...] = ()
    partitions: tuple[PartitionView, ...] = ()
    events: tuple[EventView, ...] = ()
    digest: str = ""
    failure: FailureView | None = None
    is_eta_rough: bool = False  # the number of workers has just changed
    tables: tuple[TableView, ...] = ()
    checkpoint: int | None = None  # newest complete version of this run
    checkpoint_age_s: Finite | None = None
    lost_workers: int = 0
    target_workers: int = 0  # that should run; 0 where they are started by hand
    skipped_tasks: int = 0  # training tasks that were ended where they raised
    skipped_minibatches: int = 0  # and what they left out, of a feed that keeps every record
    skipped_evaluation_tasks: int = 0
    snapshot: int | None = None  # version that all partitions could go on from
    snapshot_age_s: Finite | None = None
    snapshot_ratio: Finite = 0.0  # how far the job was when it was first seen
    nonfinite_losses: int = 0  # minibatches whose loss was NaN or infinite
    first_nonfinite: tuple[int, int] | None = None  # task and minibatch of the first of them
    exported: ExportView | None = None  # the finished model
    threads: int = 0  # of a worker: bits depend on it; 0 where an older master wrote this
    predictions: str = ""  # the folder that they are written to, or the file of statistics
    is_prediction: bool = False
    page: str = ""  # the address of the status page, while there is one
    is_analysis: bool = False
    is_allreduce: bool = False  # then the one partition is on the workers together
    generation: tuple[int, int] | None = None  # of the group that they are: term, and count of that term's
    duplicates_ignored: int = 0  # gradients that came again, since the master began
    failed_attempts: int = 0  # at tasks, since the master began
    is_endless: bool = (
        False  # totals are up to the epoch's end, or of the data that has come so far: see `share`
    )
    waits_for_data_s: Finite | None = None  # since when there is nothing left to train on

    @property
    def strategy(self) -> str:
        """How the job is distributed, by its flag's name."""
        return "AllreduceStrategy" if self.is_allreduce else "ParameterServerStrategy"

    @property
    def servers(self) -> tuple[PartitionView, ...]:
        """The parameter servers."""
        return () if self.is_allreduce else self.partitions

    @property
    def members(self) -> tuple[str, ...]:
        """The workers that train together now, in the order of their ranks."""
        ranks = {worker.rank: worker.id for worker in self.workers if worker.rank is not None}
        return tuple(ranks[rank] for rank in sorted(ranks))

    @property
    def share(self) -> float | None:
        """How much of the job is done, from 0 to 1; None if nobody knows how much there is, and screens count records."""
        return None if self.is_endless else self.ratio

    @property
    def snapshot_share(self) -> float | None:
        """The same for when the newest snapshot was seen first."""
        return None if self.is_endless else self.snapshot_ratio

    @property
    def epoch_text(self) -> str:
        """The epoch under way, of how many, if that is known; nothing for a job without epochs."""
        if not self.is_training:
            return ""
        return f"epoch {self.epoch}" if self.is_endless else f"epoch {self.epoch}/{self.epochs}"

    @property
    def is_training(self) -> bool:
        """Whether the job trains: one that only evaluates has no epochs; its records are those evaluated."""
        return self.epochs > 0

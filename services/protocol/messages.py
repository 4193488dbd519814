"""Every message of the wire: who sends it, what answers it.

All of them are safe to repeat (the ledger is the duplicate filter; a server keeps no past answers).
A message evolves by new fields with defaults, at its end; a tag is never used again.  How a message
becomes bytes is the codec's affair: an array field travels as raw frames behind the header.
"""

from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from edlz.services.protocol.concluded_rounds import CallbackNeeds, Decision, LossSum, ShownRound
from edlz.services.protocol.job_status import JobStatus, StatusRequest
from edlz.services.protocol.layout import Layout
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.message_types import Message, Record
from edlz.services.protocol.plan import Plan, TaskRange

# Spelled out: where Python has type aliases of its own, npt.NDArray is one, which the codec cannot look into.
DenseVector = np.ndarray[tuple[Any, ...], np.dtype[np.float32]]
Counters = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
Ids = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
MetricState = dict[str, list[np.ndarray[tuple[Any, ...], np.dtype[np.float64]]]]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]  # of what decides something: a number, and finite
Identity = tuple[int, int]  # (term, n): an incarnation or an era
SnapshotName = tuple[Identity, int]  # (era or incarnation, version)
Ends = tuple[tuple[int, int], ...]  # (task, index): where tasks end before their records do, by task

NO_IDENTITY: Identity = (0, 0)
UNKNOWN_INDEX = -1  # of a minibatch: the worker that had the task in hand has died
ANY_VERSION = -1  # a pull of whatever the partition has now


# ---------------------------------------------------------------- any peer


class Ping(Message, frozen=True, kw_only=True, tag=1):
    """Any client -> any server, answered by Pong: is somebody there?"""


class Pong(Message, frozen=True, kw_only=True, tag=2):
    role: str
    job: str


class ErrorReply(Message, frozen=True, kw_only=True, tag=3):
    """Any server's answer to what it cannot take; `code` is a key of errors.ERRORS_BY_CODE."""

    code: str
    message: str
    help: str = ""


# ---------------------------------------------------------------- the job


class Job(Record, frozen=True, kw_only=True):
    """What a worker or a partition needs to know of the job; comes with its first answer."""

    name: str
    run: str  # made when the job was planned: two runs of one name never share a snapshot
    config: dict[str, str | int | float | bool | None]  # JobConfig, flag by flag
    plan: Plan
    partitions: int
    begins_from: str = ""  # a checkpoint's version folder, in place of the state before training
    run_number: int = 0  # of the run, among those that have written to its checkpoint folder


# ---------------------------------------------------------------- partition -> master


class TableTelemetry(Record, frozen=True, kw_only=True):
    """Of one embedding table, for display; counts of rows read and made since the partition began."""

    path: str
    rows: int
    memory_bytes: int = 0
    rows_read: int = 0
    rows_unknown: int = 0
    rows_created: int = 0


class OperationTelemetry(Record, frozen=True, kw_only=True):
    """Requests of one kind: how many took how long (`buckets.DURATIONS_S`), and how long all of them."""

    name: str
    seconds: float
    counts: tuple[int, ...]


class PartitionTelemetry(Record, frozen=True, kw_only=True):
    """For display only; decides nothing."""

    memory_bytes: int = 0
    cpu_share: float = 0.0  # of one core, since the status before
    requests: int = 0
    tables: tuple[TableTelemetry, ...] = ()
    # Counts of this life, or of a part of it.
    duplicates: int = 0  # pushes that came again
    rejected: tuple[tuple[str, int], ...] = ()  # requests that were refused, by reason
    staleness: tuple[int, ...] = ()  # applied pushes, by `buckets.STALENESS`
    staleness_sum: float = 0.0
    operations: tuple[OperationTelemetry, ...] = ()
    bytes_in: int = 0
    bytes_out: int = 0


class PartInfo(Record, frozen=True, kw_only=True):
    """One partition's two files of a checkpoint, durable in its folder."""

    partition: int
    partitions: int
    bytes: int
    body_checksum: str
    head_checksum: str
    rows: tuple[int, ...] = ()  # of each table


class CheckpointPart(Record, frozen=True, kw_only=True):
    """A partition has written its part of checkpoint `number` (sync: the version itself), or could not."""

    number: int
    version: int
    info: PartInfo | None = None
    error: str = ""
    attempt: int = 0  # of this partition's life: tells a second failure from a repeated report
    where: str = ""  # the process that could not, if it is not the partition's own: a member of a group


class CheckpointOrder(Record, frozen=True, kw_only=True):
    """What a checkpoint asks of a partition now.

    Sync, `cut`: have all partitions cut at the next version (partition 0 spreads the word), or, with a `version`,
    at that one, where all of them stand.  Async: `near`, report often; `freeze`, hold pushes and report the ledger;
    `level`, take those below `marks`, then cut; `version` names the folder.
    """

    number: int
    phase: Literal["cut", "near", "freeze", "level"]
    version: int = 0
    marks: LedgerRecord | None = None


class Recount(Record, frozen=True, kw_only=True):
    """Minibatches in a partition's state, as its apply path counted them, beside what should be there by now."""

    expected: int = 0
    applied: int = 0
    missing: int = 0
    doubled: int = 0


class ClosedTask(Record, frozen=True, kw_only=True):
    """Where a partition stands with a task that it takes no pushes of: staged minibatches count as applied.

    `number` is that of the master's wish to close it.
    """

    task: int
    number: int
    mark: int
    finished: bool


class PartitionStatus(Message, frozen=True, kw_only=True, tag=10):
    """Partition -> master, each heartbeat and after a change; answered by Granted or PartitionOrders."""

    partition: int
    boot: int
    incarnation: Identity | None
    seq: int
    term: int
    endpoint: str
    era: Identity | None
    version: int
    has_base: bool
    ledger: LedgerRecord | None  # in full until the master has answered one of this (term, incarnation, era)
    finished_tasks: int
    minibatches: int
    open_minibatches: int  # applied minibatches of unfinished tasks
    snapshots: tuple[SnapshotName, ...]
    is_sealed: bool
    telemetry: PartitionTelemetry = PartitionTelemetry()
    near: int = 0  # async: the checkpoint that is about to be cut
    frozen: int = 0  # async: the newest checkpoint for which pushes were held
    parts: tuple[CheckpointPart, ...] = ()  # not yet known to be in a complete checkpoint
    recount: Recount = Recount()
    closed: tuple[ClosedTask, ...] = ()
    run: str = ""  # of the job, as soon as it is known: another run is another job
    checkpoints: tuple[SnapshotName, ...] = ()  # its parts of complete ones, as names of snapshots
    is_leaving: bool = False  # it was told to end, and waits until what it has is saved
    losses: LossSum = LossSum()  # of the minibatches in its state, if workers tell them
    can_wait: bool = False  # as of WorkerStatus: it stands behind the fence


class Granted(Message, frozen=True, kw_only=True, tag=11):
    """Master -> partition: its name in this life, or (None) only the master's term; never orders."""

    term: int
    incarnation: Identity | None
    job: Job | None = None
    ends: Ends = ()  # as in the orders: what is of another history is not to begin from


class PartitionOrders(Message, frozen=True, kw_only=True, tag=12):
    """Master -> partition: what should be true, not what to do."""

    term: int
    number: int
    incarnation: Identity
    stop: bool = False
    era: Identity | None = None
    restore: SnapshotName | None = None
    discard_below: int = 0
    seal: bool = False
    checkpoint: CheckpointOrder | None = None
    checkpointed: int = 0  # checkpoints up to this number are complete or abandoned
    ends: Ends = ()  # each of these tasks ends there, by an empty minibatch
    closing: tuple[tuple[int, int], ...] = ()  # (task, number): take no pushes, report where it stands
    newest_checkpoint: int = -1  # version of the last one completed: there is something new to be seen
    snapshot_at: int = (
        -1
    )  # sync: all partitions stand at this version, and one leaves: write a snapshot of it
    hurries: bool = False  # sync: one leaves, and all are to report often
    fence: int = 0  # sync: no task from this one on is leased; when those before are finished, report at once
    task_count: int = 0  # the job ends behind so many tasks; 0: the plan's


# ---------------------------------------------------------------- worker -> master


class DoneTask(Record, frozen=True, kw_only=True):
    """A training task that every named partition incarnation has finished (async) or era (sync)."""

    task: int
    era: Identity
    incarnations: tuple[Identity, ...]


class PartFile(Record, frozen=True, kw_only=True):
    """The file with the predictions of one task, durable in its folder."""

    bytes: int
    checksum: str


class DoneEvaluation(Record, frozen=True, kw_only=True):
    """Metric state of one evaluation task: sums and counts, not outputs.

    Of a job that predicts or analyzes: no states, and `part`, unless the user's processor takes the outputs.
    """

    round: int
    task: int
    records: int
    states: MetricState
    part: PartFile | None = None


class EvaluationResult(Record, frozen=True, kw_only=True):
    """The metrics of a whole round, computed from its merged state."""

    round: int
    metrics: dict[str, float]
    decision: Decision | None = None  # of the callbacks, if they were shown it


class FailedTask(Record, frozen=True, kw_only=True):
    """The user's code raised on this task's records."""

    kind: Literal["training", "evaluation"]
    task: int
    index: int
    error: str  # one line: type and message
    where: str  # file:line in function, of the user's own frame
    traceback: str
    round: int = 0
    attempt: int = 0  # of this process: tells a repeated report from a second failure
    ends_job: bool = False  # it is not tried again: the job has asked to end there (--stop_on_nan)
    help: str = ""  # what to write instead, where that is known

    @property
    def key(self) -> tuple[int, int]:
        """How the master notes it: (round, task), with round -1 for training."""
        return (-1 if self.kind == "training" else self.round, self.task)


class Failure(Record, frozen=True, kw_only=True):
    """What no other attempt can mend: the model does not load, its optimizer is not supported."""

    code: str
    message: str
    help: str = ""
    traceback: str = ""
    where: str = ""  # as of FailedTask, and so is `error`
    source: str = ""  # that line of the user's code
    error: str = ""
    is_mistake: bool = False  # of the user's, found before anything was computed


class NonFiniteLoss(Record, frozen=True, kw_only=True):
    """A minibatch whose loss is NaN or infinite."""

    task: int
    index: int
    loss: float


class ExportWish(Record, frozen=True, kw_only=True):
    """How a job's finished model is to come out; see the flags of these names."""

    output: str
    formats: tuple[str, ...] = ("saved_model",)
    unknown_ids: str = ""


class ExportReport(Record, frozen=True, kw_only=True):
    """An export that is whole and in its place; `digest`: of the parameters that it was made of."""

    digest: str
    wish: ExportWish
    place: str
    size_bytes: int
    tables: tuple[tuple[str, int, int], ...] = ()  # of each: path, rows, values of a row
    signatures: tuple[str, ...] = ()
    needed_classes: tuple[str, ...] = ()  # without whose code a Keras file cannot be loaded


class FailedExport(Record, frozen=True, kw_only=True):
    """An export could not be made."""

    digest: str
    failure: Failure


# ---------------------------------------------------------------- members of an all-reduce group
#
# A group holds the whole model several times: each member (a life of a worker, named by its incarnation) has a replica.
# A generation is one unbroken history of one group; a state's name is the generation of its last step and its version.

MemberPhase = Literal[
    "starting",
    "waiting",
    "promised",
    "fetching",
    "computing",
    "staged",
    "advancing",
    "held",
    "barred",
    "failed",
    "sealing",
    "sealed",
]


class Member(Record, frozen=True, kw_only=True):
    """A life of a worker, and where the others reach it."""

    incarnation: Identity
    worker: str
    endpoint: str = ""


class SlotFailure(Record, frozen=True, kw_only=True):
    """The user's code raised where a member looked at this minibatch."""

    task: int
    index: int
    error: str = ""
    failed: FailedTask | None = None


class WrittenPart(Record, frozen=True, kw_only=True):
    """Part `rank` of `count` of a state is durable, or (`error`) could not be written.

    `is_checkpoint`: in the checkpoints' folder, else in that of recovery snapshots.
    """

    name: SnapshotName
    rank: int
    count: int
    is_checkpoint: bool = False
    info: PartInfo | None = None
    error: str = ""
    attempt: int = 0  # of this member: tells a second failure from a repeated report


class MemberStatus(Record, frozen=True, kw_only=True):
    """What a worker of an all-reduce job says of its replica.

    `members`: of the group it takes steps in, () while it is in none.  `lacks`: members of which it has waited long for a
    part of the step, or of the state; `unanswered`: owners of which it has for a mean; `has_mean`: its own are done.
    `source`: the state that its group has begun with.
    `differs_from`: its state is damaged, and this member has the right one.  `agreed`: the newest state that all members of its
    group had; `is_doubtful`: later ones may have in them what a damaged member has computed.
    """

    term: int
    phase: MemberPhase
    generation: Identity
    members: tuple[Identity, ...]
    name: SnapshotName
    finished: tuple[int, ...]  # bounds of a TaskSet
    lacks: tuple[Identity, ...] = ()
    unanswered: tuple[Identity, ...] = ()
    has_mean: bool = False
    failed: SlotFailure | None = None
    written: tuple[WrittenPart, ...] = ()
    unreadable: SnapshotName | None = None  # it was to read this state, and cannot
    marks: tuple[tuple[int, int], ...] = ()  # as in a ledger, and so is the next one
    minibatches: int = 0
    losses: LossSum = LossSum()
    recount: Recount = Recount()
    source: SnapshotName = (NO_IDENTITY, 0)
    differs_from: Identity | None = None
    agreed: SnapshotName = (NO_IDENTITY, 0)
    is_doubtful: bool = False
    computing: tuple[int, int] | None = None  # of a careful one: task and index of what comes next


class Decided(Record, frozen=True, kw_only=True):
    """How far the members of a group may go, and how: what was decided at the barriers that the job has passed.

    `fence`: no step has a task from this one on; `task_count`: the job ends before that one.  `rates`: what callbacks
    have set, each with the first task that it holds for; before the first of them the model's own rate holds.
    """

    fence: int
    task_count: int
    rates: tuple[tuple[int, float], ...] = ()


class GroupOrders(Record, frozen=True, kw_only=True):
    """What is to be true of a worker of an all-reduce job.

    Without members: promise the generation, and wait; if it `is_join`, after the step in work.  `load`: read this state.
    `released`: the state behind whose evaluation steps may be taken.  `checkpoint`: one is wanted out of turn, with this
    number; `checkpointed`: the source's version, if it is a complete checkpoint, else 0.  `decided`: None while this master
    does not know it; then what was said before holds, and who has heard nothing waits.
    """

    term: int
    generation: Identity
    members: tuple[Member, ...] = ()
    source: SnapshotName = (NO_IDENTITY, 0)
    holders: tuple[Identity, ...] = ()
    load: SnapshotName | None = None
    ends: Ends = ()
    is_join: bool = False
    released: SnapshotName = (NO_IDENTITY, 0)
    checkpoint: int = 0
    checkpointed: int = 0
    decided: Decided | None = None
    caution: tuple[int, int] = (0, 0)  # from this version on, before that one, members are careful
    computing: tuple[int, int] | None = None  # as in the member's newest word: that is heard
    closing: tuple[int, ...] = ()  # tasks that are about to be ended: no step has a minibatch of them


# ---------------------------------------------------------------- a worker's status, and its answer


class WorkerTelemetry(Record, frozen=True, kw_only=True):
    """For display only; decides nothing.  Seconds are sums since the status before."""

    state: Literal[
        "starting", "training", "waiting", "evaluating", "done", "predicting", "exporting", "analyzing"
    ] = "starting"
    task: int | None = None
    loss: float | None = None
    minibatches: int = 0
    records: int = 0
    read_s: float = 0.0
    pull_s: float = 0.0
    compute_s: float = 0.0
    push_s: float = 0.0
    wait_s: float = 0.0
    memory_bytes: int = 0
    waits_for: str = ""  # what keeps it from its work, as a screen shows it: a full disk
    learning_rate: float | None = None  # of its newest minibatch
    sum_s: float = (
        0.0  # of a member of a group: adding up, dividing and applying; then `push_s` is for sending parts
    )
    bytes_in: int = 0  # of a member, from and to the others
    bytes_out: int = 0


class WorkerStatus(Message, frozen=True, kw_only=True, tag=20):
    """Worker -> master, each heartbeat and after a change; answered by WorkerOrders.  One under way at a
    time; the same seq gets the same answer."""

    worker: str
    boot: int
    incarnation: Identity | None
    seq: int
    era: Identity
    holding: tuple[int, ...] = ()
    evaluating: tuple[tuple[int, int], ...] = ()  # (round, task)
    done: tuple[DoneTask, ...] = ()
    evaluated: tuple[DoneEvaluation, ...] = ()
    results: tuple[EvaluationResult, ...] = ()
    failed: tuple[FailedTask, ...] = ()
    failure: Failure | None = None
    wants_task: bool = False
    wants_evaluation: bool = False
    telemetry: WorkerTelemetry = WorkerTelemetry()
    steps: int = 0  # minibatches pushed by this process: a lease does not age while this rises
    busy_s: Seconds = 0.0  # how long it has been at the present piece of work
    longest_s: Seconds = 0.0  # the longest piece of that kind so far
    address_list: Identity = NO_IDENTITY  # which list of partitions it has
    nonfinite_losses: int = 0  # minibatches of this process whose loss was NaN or infinite
    nonfinite_loss: NonFiniteLoss | None = None  # the newest of them
    first_nonfinite_loss: NonFiniteLoss | None = None
    is_starting: bool = False  # the present piece of work is the first of its kind: building, compiling
    is_waiting: bool = False  # all that it has in hand waits for others
    run: str = ""  # as of PartitionStatus
    export_wish: ExportWish | None = None  # of the model's callbacks()
    exporting: str = ""  # the digest of the model of which it has an export in hand, or to report
    exported: ExportReport | None = None
    failed_export: FailedExport | None = None
    callbacks: CallbackNeeds | None = None  # of the model, as soon as it is built, if it has any
    can_wait: bool = False  # it has nothing in hand: the answer may be held until there is something to say
    rounds: int = 0  # of barriers that it has been told of, from the first on
    computes_ahead: bool = False  # it takes tasks behind a barrier that is not passed yet
    barred: tuple[int, ...] = ()  # of the tasks in hand, those that wait for their barrier
    member: MemberStatus | None = None  # of an all-reduce job, as soon as the model is built
    member_endpoint: str = ""  # where other members reach it
    sees_job_dir: bool = True  # a member: what it writes to go on from is where the master looks for it


class PartitionAddress(Record, frozen=True, kw_only=True):
    index: int
    incarnation: Identity
    endpoint: str
    has_base: bool


class Lease(Record, frozen=True, kw_only=True):
    """Leave to work on a training task.  `learning_rate`: what callbacks have set for it, in place of the model's.

    `is_barred`: the barrier before it is not passed yet; its first minibatch is computed, and kept back until it is.
    `records`: of a task that has come since the job was planned.
    """

    task: int
    learning_rate: float | None = None
    is_barred: bool = False
    records: TaskRange | None = None


class EvaluationLease(Record, frozen=True, kw_only=True):
    """Leave to evaluate one task of a round."""

    round: int
    task: int
    records: TaskRange
    attempt: int = 0  # leases of this task before it in this round
    version: int = ANY_VERSION  # sync: of these parameters, where training waits for the round


class Conclusion(Record, frozen=True, kw_only=True):
    """The merged state of a round, from which the worker computes the metrics."""

    round: int
    states: MetricState
    shown: ShownRound | None = None  # to the callbacks, if they are to be called


class ExportLease(Record, frozen=True, kw_only=True):
    """Leave to export the finished model; `digest`: of its parameters, which says which one it is."""

    digest: str
    wish: ExportWish
    checkpoint: int = -1  # a complete one that holds it, if there is any
    result: int = -1  # the checkpoint that is exported in its place: callbacks have put back its weights
    task_count: int = 0  # the job has ended behind so many tasks; 0: the plan's


class WorkerOrders(Message, frozen=True, kw_only=True, tag=21):
    """Master -> worker."""

    term: int
    seq: int
    incarnation: Identity | None
    stop: bool = False
    finished: bool = False
    era: Identity = NO_IDENTITY
    job: Job | None = None
    partitions: tuple[PartitionAddress, ...] = ()
    lease: Lease | None = None
    evaluation: EvaluationLease | None = None
    conclude: Conclusion | None = None
    noted: tuple[int, ...] = ()
    noted_evaluations: tuple[tuple[int, int], ...] = ()
    noted_results: tuple[int, ...] = ()
    noted_failures: tuple[tuple[int, int], ...] = ()  # (round or -1, task)
    again: tuple[int, ...] = ()
    dump: bool = False  # write down what all threads are at: it goes, since it got nowhere
    address_list: Identity = NO_IDENTITY  # the newest list of partitions; a worker that has it gets none
    ends: tuple[tuple[int, int], ...] = ()  # (task, index) of tasks in hand that end there, without it
    export: ExportLease | None = None
    noted_export: str = ""  # the digest of the export whose report, or failure, is noted
    check: bool = False  # nothing is trained in this run yet: try the model on a minibatch once it is built
    released: tuple[Lease, ...] = ()  # of tasks in hand that were barred: their barrier is passed
    group: GroupOrders | None = None  # of an all-reduce job


# ---------------------------------------------------------------- worker -> partition


class OptimizerSpec(Record, frozen=True, kw_only=True):
    """A compiled optimizer's name and settings, without the learning rate: that travels with the push.

    `undecayed`: indices of the dense variables that weight decay leaves alone.
    """

    name: str
    settings: dict[str, float | bool]
    undecayed: tuple[int, ...] = ()


class InitializerSpec(Record, frozen=True, kw_only=True):
    """How the row of an id that nobody has trained yet looks.

    constant: `a`; uniform: from `a` to `b`; normal and truncated_normal (at two deviations): mean `a`,
    standard deviation `b`.
    """

    kind: Literal["constant", "uniform", "normal", "truncated_normal"]
    a: float
    b: float = 0.0


class TableSpec(Record, frozen=True, kw_only=True):
    """An embedding table.  `path` is for people, its place in the list of tables is its identity."""

    path: str
    dim: int
    initializer: InitializerSpec
    optimizer: OptimizerSpec


class Initialise(Message, frozen=True, kw_only=True, tag=30):
    """Worker -> partition: this partition's slices of the initial values; answered by Initialised.

    The first one becomes the base snapshot; a later one must be equal, and may leave the values out:
    `digest` (of initial_digest) stands for all of it.
    """

    plan_hash: str
    digest: str
    layout: Layout
    optimizer: OptimizerSpec
    dense: DenseVector | None
    state: DenseVector | None
    counters: Counters | None
    tables: tuple[TableSpec, ...] = ()
    run: str = ""  # of the job: a partition of another one takes nothing of it
    incarnation: Identity | None = None  # of the life that is meant: another one refuses


class Initialised(Message, frozen=True, kw_only=True, tag=31):
    partition: int


class RowIds(Record, frozen=True, kw_only=True):
    """Rows of all tables that one partition owns: table after table, `counts[t]` ids of table t, none twice.

    What is said of the rows lies in the same order in one flat vector: of table t `counts[t] * dim` numbers.
    """

    counts: tuple[int, ...]
    ids: Ids


class Push(Record, frozen=True, kw_only=True):
    """A gradient of minibatch (task, index); `gradient` None: an empty minibatch that ends the task.

    `row_gradients` belongs to `rows`.  `table_rates`: each table's learning rate, where one differs.
    """

    task: int
    index: int
    is_last: bool
    learning_rate: float
    gradient: DenseVector | None
    state: DenseVector | None
    counters: Counters | None
    snapshot_at: int = 0  # not used any more, and neither is the next one: they belong to the exchange
    checkpoint_at: int = 0
    rows: RowIds | None = None
    row_gradients: DenseVector | None = None
    table_rates: tuple[float, ...] = ()
    loss: float | None = None  # if callbacks are to know the mean


class Pull(Record, frozen=True, kw_only=True):
    """Parameters for a task.

    Sync: held until minibatch (task, index) is due, or (`version` >= 0) that version at once.  Async,
    and `version` = ANY_VERSION: at once.  Vectors that the worker has (`have_version`) or does not want
    stay out.
    """

    task: int
    index: int = 0
    version: int | None = None
    have_version: int = ANY_VERSION
    rows: RowIds | None = None
    want_vectors: bool = True


class Exchange(Message, frozen=True, kw_only=True, tag=32):
    """Worker -> partition, answered by Exchanged or Refused: a step costs one message each way.

    With a push `snapshot_at` and `checkpoint_at` carry on what partitions have answered.
    """

    era: Identity
    incarnation: Identity | None
    version: int  # the version of this partition that the push was computed on
    push: Push | None = None
    pull: Pull | None = None
    run: str = ""
    snapshot_at: int = 0
    checkpoint_at: int = 0


class Exchanged(Message, frozen=True, kw_only=True, tag=33):
    """Where the partition stands with the task, and its parameters if asked for and newer.

    `mark` and `finished` are those of the pull's task, or else of the push's.
    """

    incarnation: Identity
    mark: int
    finished: bool
    version: int
    snapshot_at: int = 0
    dense: DenseVector | None = None
    state: DenseVector | None = None
    counters: Counters | None = None
    rows: DenseVector | None = None
    checkpoint_at: int = 0


class Refused(Message, frozen=True, kw_only=True, tag=34):
    reason: Literal["not ready", "era", "incarnation", "gap", "behind", "moved on", "held", "stale"]


class NewestPull(Message, frozen=True, kw_only=True, tag=35):
    """Worker -> partition, answered by Exchanged: the newest values, for evaluation; changes nothing.

    `version`: of no other one (Refused, until it is there).
    """

    have_version: int = ANY_VERSION
    rows: RowIds | None = None
    run: str = ""
    version: int = ANY_VERSION
    incarnation: Identity | None = None  # as in Initialise


class ReadVector(Message, frozen=True, kw_only=True, tag=36):
    """Master -> partition: a piece of a vector without padding, for the digest; answered by VectorPart."""

    vector: str  # dense, state, or a slot's name
    first: int
    count: int
    run: str = ""
    incarnation: Identity | None = None  # as in Initialise


class VectorPart(Message, frozen=True, kw_only=True, tag=37):
    """`total`: elements, without padding, of this partition's slice.  `slots`: the optimizer's, in order."""

    total: int
    slots: tuple[str, ...]
    values: DenseVector


class ReadTables(Message, frozen=True, kw_only=True, tag=38):
    """Master -> partition: the digests of its embedding tables; answered by TableDigests."""

    run: str = ""
    incarnation: Identity | None = None  # as in Initialise


class TableDigests(Message, frozen=True, kw_only=True, tag=39):
    """Of each table the sum modulo 2**128 of its rows' hashes, 16 bytes, little-endian."""

    digests: tuple[bytes, ...]


# ---------------------------------------------------------------- member -> member


class SlotHeader(Record, frozen=True, kw_only=True):
    """The minibatch in a slot of a step; `loss` and `records` are for display and callbacks."""

    slot: int
    task: int
    index: int
    is_last: bool
    is_empty: bool
    records: int = 0
    loss: float | None = None


class Reduce(Message, frozen=True, kw_only=True, tag=50):
    """Member -> owner of a chunk, answered by Reduced when the parts of all members are there, or by GroupRefused.

    `places`: first slots of the nodes that the member has added up; `dense` and `state` have the bucket's piece of
    each.  What all must agree on comes from rank 0: `learning_rate`, and `snapshot_at` and `checkpoint_at`, versions that all
    write, for recovery and as a checkpoint.  `checksum`: of the member's whole state, at versions where members compare theirs.
    `is_again`: the part was sent before, and this one has nothing in it but where it belongs: its answer is still waited for.
    """

    generation: Identity
    version: int
    rank: int  # of the sender
    bucket: int
    headers: tuple[SlotHeader, ...]
    places: tuple[int, ...] = ()
    dense: tuple[DenseVector, ...] = ()
    state: tuple[DenseVector, ...] = ()  # with bucket 0
    counters: Counters | None = None  # the largest of the member's slots, to rank 0 with bucket 0
    learning_rate: float = 0.0
    snapshot_at: int = 0
    checkpoint_at: int = 0
    checksum: str = ""
    is_again: bool = False


class Reduced(Message, frozen=True, kw_only=True, tag=51):
    """The mean over all slots of a bucket; None if all were empty.

    `headers`: of all slots, the same in all answers.  `checksums`: of all members' states, in the order of ranks.
    """

    generation: Identity
    version: int
    bucket: int
    headers: tuple[SlotHeader, ...]
    dense: DenseVector | None = None
    state: DenseVector | None = None
    counters: Counters | None = None
    learning_rate: float = 0.0
    snapshot_at: int = 0
    checkpoint_at: int = 0
    checksums: tuple[str, ...] = ()


class GroupRefused(Message, frozen=True, kw_only=True, tag=52):
    """`generation`: what the refusing member has promised.  "not here": the part that was sent before is not."""

    reason: Literal["not ready", "generation", "moved on", "not here"]
    generation: Identity


class FetchState(Message, frozen=True, kw_only=True, tag=53):
    """New member -> holder of the source, answered by StatePiece or GroupRefused: piece `piece` of `pieces` of a state."""

    generation: Identity
    name: SnapshotName
    piece: int
    pieces: int


class StateHead(Record, frozen=True, kw_only=True):
    """All of a state that is not cut into pieces, and the digest of the whole."""

    iterations: int
    ledger: LedgerRecord
    losses: LossSum
    digest: str


class StatePiece(Message, frozen=True, kw_only=True, tag=54):
    """`head`, `counts` and `counters` come with piece 0."""

    generation: Identity
    name: SnapshotName
    piece: int
    dense: DenseVector
    state: DenseVector
    slots: tuple[DenseVector, ...]
    head: StateHead | None = None
    counts: Counters | None = None
    counters: Counters | None = None


# ---------------------------------------------------------------- supervisor and viewers -> master


class ProcessExit(Record, frozen=True, kw_only=True):
    """A process has ended: its exit code, or the signal that killed it.

    `cause` is what whoever runs processes knows beyond that.  `launch` counts the starts that it has made: with
    it a report that comes twice counts once.
    """

    name: str
    code: int | None
    signal: int | None = None
    reason: str = ""
    cause: Literal["", "preempted", "out of memory"] = ""
    launch: int = 0
    is_remedied: bool = False  # whoever runs processes has seen to it that the next one does not end so


class SupervisorStatus(Message, frozen=True, kw_only=True, tag=40):
    """Launcher -> master: what runs and what has ended; answered by SupervisorOrders.

    `placed`: those of `running` that have their place; None where whatever is started has one.  `crowded`:
    parameter servers that there is no room for, or that a quota keeps out.  `unreachable`: those of `running` whose
    machine does not answer.
    """

    seq: int
    running: tuple[str, ...] = ()
    exits: tuple[ProcessExit, ...] = ()
    stop: bool = False  # the job should end before it is done, with a checkpoint to go on from
    room: int | None = None  # workers that may run here now; None for any number
    notes: dict[str, str] = {}  # why services that should run do not (yet), by name
    placed: tuple[str, ...] | None = None
    crowded: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    run: str = ""  # of the job, as the master has told it


class SupervisorOrders(Message, frozen=True, kw_only=True, tag=41):
    """Master -> launcher: the processes that should run (worker-0, ps-1, ...).

    `hung`: those that are to end although they may not be able to, with their stacks in their logs first.
    `waiting`: workers that the job could use at once, if there was room.
    """

    term: int
    desired: tuple[str, ...] = ()
    stop: bool = False
    hung: tuple[str, ...] = ()
    waiting: int = 0
    run: str = ""


class ScaleRequest(Message, frozen=True, kw_only=True, tag=44):
    """Anybody -> master: so many workers should run from now on; answered by Scaled, or an ErrorReply."""

    workers: int


class Scaled(Message, frozen=True, kw_only=True, tag=45):
    """`before`, `after`: workers that should run; `warning`: why the new number may not help."""

    before: int
    after: int
    warning: str = ""


REQUESTS = (
    *(Ping, PartitionStatus, WorkerStatus, Initialise, Exchange, NewestPull, ReadVector, ReadTables),
    *(SupervisorStatus, ScaleRequest, StatusRequest, Reduce, FetchState),
)
ANSWERS = (
    *(Pong, ErrorReply, Granted, PartitionOrders, WorkerOrders, Initialised, Exchanged, Refused),
    *(VectorPart, TableDigests, SupervisorOrders, Scaled, JobStatus, Reduced, GroupRefused, StatePiece),
)
# Requests that a server may hold until others have come: a pull of a synchronous step waits for the pushes of
# all its slots, a push for the end of a cut, a part of a sum for those of all members.
HELD = frozenset({Exchange, Reduce})

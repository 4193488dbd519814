"""What a simulated job is to do, and what befalls it."""

import dataclasses
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edlz.core_ext.ids import group_ids
from edlz.services.protocol.growing_plan import GrowingPlan, Piece
from edlz.services.protocol.messages import RowIds, TableSpec
from edlz.services.protocol.plan import Plan, Shard, TaskRange
from edlz.services.worker.partition_traffic import row_ids
from tests import builders
from tests.simulation.model import TABLES

BEGINNING_MOMENTS = ("initialising", "base")
MOMENTS = ("sealing", "concluding", "digest", "complete")
EXPORT_MOMENTS = ("digest", "exporting", "published", "exported", "complete")
PREDICTION_MOMENTS = (
    "concluding",
    "first part",
    "last part",
    "publishing",
    "published",
    "digest",
    "complete",
)
BARRIER_MOMENTS = (
    "held back",
    "waiting",
    "standing",
    "barrier",
    "evaluating",
    "shown",
    "keeping",
    "decided",
    "passed",
)
GROUP_MOMENTS = (
    *(
        f"member {phase}"
        for phase in (
            "promised",
            "fetching",
            "computing",
            "staged",
            "advancing",
            "barred",
            "sealing",
            "sealed",
        )
    ),
    *("barrier", "evaluating", "shown", "keeping", "decided", "passed", "digest", "complete"),
)

GROWTH_MOMENTS = ("grown", "dry", "waiting", "sealing", "digest", "complete")

__all__ = [
    "BARRIER_MOMENTS",
    "BEGINNING_MOMENTS",
    "EXPORT_MOMENTS",
    "GROUP_MOMENTS",
    "GROWTH_MOMENTS",
    "MOMENTS",
    "PREDICTION_MOMENTS",
    "Fault",
    "Schedule",
    "bad_minibatches",
    "ids_of",
    "length_of",
    "raises_at",
    "shard_of",
]


@dataclass(frozen=True)
class Fault:
    at: float
    # kill, wipe (its disk is lost too), stall (perhaps a zombie: replaced, wakes up later), cut, full (its disk),
    # foreign (another run speaks), term (told to end, killed so many seconds later), join (started by hand),
    # apart (a zombie that the master cannot reach, and workers can), damage (a member's state in memory changes)
    kind: str
    role: str
    seconds: float = 0.0
    is_replaced: bool = True
    during: str = ""  # a moment of the job's life: so many seconds after it is reached for the first time


@dataclass(frozen=True)
class Schedule:
    """Everything that happens, apart from delays and losses, which follow from `seed`."""

    seed: int
    mode: str
    slots: int
    epochs: int
    lengths: tuple[int, ...]  # minibatches of each task, over all epochs; only workers know them
    partitions: int
    workers: int
    noise: float = 0.0
    snapshot_every_s: float = 10.0
    evaluation_steps: int = 0
    evaluation_tasks: int = 0
    failing: tuple[tuple[int, int], ...] = ()  # (task, times its code raises)
    has_tables: bool = False
    checkpoint_steps: int = 0
    keeps: int = 0  # checkpoints; 0 for all
    can_link: bool = True  # checkpoints and snapshots lie on one file system
    has_foreign: bool = False  # another run has left a checkpoint in the folder
    begins_from: int = (
        0  # the version of the checkpoint that the job begins from, in its own folder; 0 for none
    )
    tolerance: int = 0  # of versions; above 0 the mode is "async" with sums of `slots` gradients
    vectors_every: int = 1
    stop_at: float = 0.0  # somebody asks the job to stop; 0 for never
    skips: bool = False  # --skip_bad_tasks
    bad: tuple[tuple[int, int], ...] = ()  # minibatches (task, index) whose code always raises
    bad_evaluations: tuple[int, ...] = ()  # evaluation tasks whose code always raises
    lame: tuple[tuple[str, int], ...] = ()  # (worker, task): it raises there, others need not
    credits: int = 32  # requests of one process to another that may be under way at once
    nonfinite: tuple[tuple[int, int], ...] = ()  # minibatches (task, index) whose loss is NaN
    stops_on_nan: bool = False
    poison: tuple[
        tuple[int, int], ...
    ] = ()  # minibatches (task, index) that end whoever reads or computes them
    poison_evaluations: tuple[int, ...] = ()  # evaluation tasks that do
    build_s: float = 0.0  # how long each worker builds; 0 for a few seconds
    hangs: tuple[
        tuple[int, int], ...
    ] = ()  # minibatches (task, index) that whoever computes them first hangs in
    refuses: bool = False  # the model does not stand its check, in any worker
    home: str = (
        "hand"  # who starts services: somebody by hand, the supervisor of a machine, or a pods' launcher
    )
    spares: int = 0
    scales: tuple[tuple[float, int], ...] = ()  # (when, how many workers are wanted from then on)
    rooms: tuple[tuple[float, int], ...] = ()  # (when, for how many workers a machine has room from then on)
    predicts: bool = False  # the evaluation tasks are to be predicted, into files
    analyzes: bool = False  # their records are to be analyzed, into files
    lost_files: tuple[int, ...] = ()  # tasks whose files are gone when they are published for the first time
    exports: bool = False  # the finished model
    has_callbacks: bool = False
    decides: bool = False  # they decide, so training waits for them (sync)
    stops_behind: int = -1  # so many barriers: there they stop the job
    max_step: int = 0  # minibatches after which the job ends; 0: none
    workers_tell_max_step: bool = False  # callbacks have it, not the flag
    keeps_best: bool = False  # they keep the best version, and put it back at the end
    is_allreduce: bool = False  # without partitions: the one that there is, is on the workers
    files: tuple[tuple[float, int], ...] = ()  # data that grows: (when a file appears, tasks in it)
    pieces: tuple[Piece, ...] = ()  # of them, what the journal has so far
    endless_tasks: int = (
        0  # epochs without end, of so many tasks; `max_step` ends the job in those of `lengths`
    )
    faults: tuple[Fault, ...] = ()

    @property
    def servers(self) -> int:
        """How many processes have a partition each."""
        return 0 if self.is_allreduce else self.partitions

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return TABLES if self.has_tables else ()

    @property
    def task_count(self) -> int:
        """How many tasks the job has, if nothing stops it: the plan takes each to have four minibatches."""
        if self.files:
            return 1 + next(
                task for task, planned in enumerate(_sums(self.grown_plan)) if planned >= self.max_step
            )
        count = len(self.lengths)
        return min(count, -(-self.max_step // 4)) if self.max_step else count

    @property
    def last_end(self) -> tuple[int, int] | None:
        """Where the last task is to end, if that is before the plan's end of it."""
        total = 4 * sum(tasks for _, tasks in self.files) or 4 * len(self.lengths)
        is_cut = self.max_step % 4 and self.max_step < total
        return (self.task_count - 1, self.max_step % 4) if is_cut else None

    @property
    def grown_plan(self) -> GrowingPlan:
        """The plan with what the journal has added."""
        return GrowingPlan.of(self.plan, self.pieces)

    def grown(self, pieces: tuple[Piece, ...]) -> "Schedule":
        """Return the same with these pieces in the journal: what is in a task's records follows from their names."""
        grown = dataclasses.replace(self, pieces=pieces)
        plan = grown.grown_plan
        return dataclasses.replace(
            grown, lengths=tuple(map(length_of, map(plan.task_range, range(plan.known))))
        )

    @property
    def plan(self) -> Plan:
        if self.files:
            shards = tuple(shard_of(i, tasks) for i, (when, tasks) in enumerate(self.files) if not when)
            return builders.plan(
                mode=self.mode,
                seed=1,
                shards=shards,
                records_per_task=4,
                epochs=0,
                slots=self.slots if self.mode == "sync" else 1,
                evaluation_shards=(Shard(name="test", first=0, count=self.evaluation_tasks * 4),),
                stream="stream",
            )
        tasks = self.endless_tasks or len(self.lengths) // max(1, self.epochs)
        return builders.plan(
            mode=self.mode,
            seed=1,
            shards=(Shard(name="data", first=0, count=tasks * 4),) if tasks else (),
            records_per_task=4,
            epochs=self.epochs,
            slots=self.slots if self.mode == "sync" or self.tolerance else 1,
            evaluation_shards=(Shard(name="test", first=0, count=self.evaluation_tasks * 4),),
            predicts=self.predicts,
            analyzes=self.analyzes,
        )


def shard_of(number: int, tasks: int) -> Shard:
    """Return a file of data that grows."""
    return Shard(name=f"file-{number}", first=0, count=tasks * 4)


def length_of(records: TaskRange) -> int:
    """Return how many minibatches there are in these records of data that grows, after the feed has left some out."""
    return zlib.crc32(f"{records.name} {records.first}".encode()) % 4 if records.count else 0


def _sums(plan: GrowingPlan) -> Iterator[int]:
    """Yield how many minibatches the plan takes the tasks up to each one to have."""
    return itertools.accumulate(plan.task_range(task).count for task in range(plan.known))


def ids_of(schedule: Schedule, task: int, index: int, partitions: int) -> tuple[RowIds, ...] | None:
    """The rows that a minibatch looks up, as each partition is asked; None if the task ends before it."""
    length = schedule.lengths[task]
    if index >= max(length, 1):
        return None
    rng = np.random.Generator(np.random.PCG64([schedule.seed, task, index]))
    count = 0 if length == 0 else 6
    tables = [group_ids(rng.integers(-3, 9, count), partitions)[:2] for _ in schedule.tables]
    return row_ids(tables, partitions)


def raises_at(schedule: Schedule, task: int, index: int, end_at: int | None) -> int | None:
    """The bad minibatch that is met when this one is looked at; half of them raise when they are read.

    To know whether a minibatch is the last one, the next one is read, unless the task has been ended there.
    """
    for bad in bad_minibatches(schedule, task):
        if bad == index or (bad == index + 1 and bad % 2 == 0 and bad != end_at):
            return bad
    return None


def bad_minibatches(schedule: Schedule, task: int) -> list[int]:
    return sorted(bad for t, bad in schedule.bad if t == task and bad < schedule.lengths[task])

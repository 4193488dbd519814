"""What a worker computes: its engine, driven piece by piece in a thread of its own.

TensorFlow never runs in the main thread: a signal would wait for the step, and the heartbeats as well.  Each method here
takes an instruction of the core, has a piece of work done in the engine's thread, and tells what has come of it by an
input for the core.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, EdlzError, ModelError
from edlz.services.parameters.store import Store, initial_digest
from edlz.services.process.runtime import Stop
from edlz.services.process.shell import Fail
from edlz.services.protocol.messages import (
    Exchanged,
    Initialise,
    Job,
    RowIds,
)
from edlz.services.worker.block_computing import BlockComputing, BlockWatch
from edlz.services.worker.core.computation import BatchCalls, Built, Computed, Engine, GroupedIds, MakeEngine
from edlz.services.worker.core.groups.inputs import BlockComputed, SlotBegins, SlotComputed, SlotFailed
from edlz.services.worker.core.inputs import (
    ExportWished,
    Fatal,
    IdsFound,
    Input,
    MinibatchComputed,
    ModelBuilt,
    TaskFailed,
)
from edlz.services.worker.core.instructions import (
    Begin,
    Build,
    Compute,
    Drop,
    FindIds,
    Outcome,
    SendInitialise,
)
from edlz.services.worker.engine.user_code.user_code import TaskError, failure_of, without_exit
from edlz.services.worker.keras_thread import KerasThread
from edlz.services.worker.loss_log import LossLog
from edlz.services.worker.member_base import (
    base_of_members,
    refuse_for_members,
    warn_of_large_embeddings,
    without_values,
)
from edlz.services.worker.parameters import Parameters, slice_of
from edlz.services.worker.part_writer import PartWriter
from edlz.services.worker.partition_traffic import Rates, join_rows, make_pushes, row_ids
from edlz.services.worker.task_computing import TaskComputing, logged
from edlz.services.worker.telemetry import Meter

__all__ = ["Computing"]

Vector = npt.NDArray[np.float32]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Step:
    """What the engine's thread has of a minibatch; `ahead`, `has_looked`: as in Outcome."""

    computed: Computed
    rates: Rates
    ahead: tuple[RowIds, ...] | None
    has_looked: bool


class Computing:
    """The engine of one job, and its thread.

    Parameters
    ----------
    config : JobConfig
        This process's own flags; the job's come with the instruction to build.
    make_engine : MakeEngine
    stop : Stop
        Once it is set, nothing is begun, and nobody hears of what is under way.
    tell : callable (Input) -> None
        Feeds the worker's core.
    fail : callable
        Ends the worker.

    Attributes
    ----------
    endpoint : str
        Where other members ask this one, in an all-reduce job.
    sees_job_dir : bool
        Whether this member sees the master's folder of the job.
    """

    def __init__(
        self,
        config: JobConfig,
        make_engine: MakeEngine,
        stop: Stop,
        tell: Callable[[Input], None],
        fail: Fail,
    ) -> None:
        self._config, self._make_engine, self._tell, self._fail = config, make_engine, tell, fail
        self.meter = Meter()
        self._thread = KerasThread(stop)
        self.pace = self._thread.pace
        self._engine: Engine | None = None
        self._built: Built | None = None
        self._parameters: Parameters | None = None
        self._job: Job | None = None
        self._loss_log = LossLog(config.log_loss_steps)
        self._writer: PartWriter | None = None
        self._local_steps = False
        self._batch_calls: BatchCalls | None = None
        self._tasks: TaskComputing | None = None
        self._base: Store | None = None  # of a member, on its way to the core
        self.endpoint, self.sees_job_dir = "", True

    async def close(self) -> None:
        """Let go of files and threads; also if that is broken off, or the process would not end."""
        try:
            if self._writer is not None:
                self._writer.close()
            if self._engine is not None:
                await asyncio.get_running_loop().run_in_executor(None, self._engine.close)
        finally:
            self._thread.close()

    @property
    def _ready(self) -> Engine:
        assert self._engine is not None, "the model is not built"
        return self._engine

    @property
    def _known_job(self) -> Job:
        assert self._job is not None
        return self._job

    # -- the model

    def build(self, instruction: Build) -> None:
        self._job = instruction.job
        self._thread.submit("build", lambda: self._build(instruction), self._on_built, self._on_refused)

    def _build(self, instruction: Build) -> Built:
        job, config = instruction.job, self._config.joined_with(instruction.job.config)
        self._loss_log.every = config.log_loss_steps
        self._local_steps = not job.plan.is_sync and config.get_model_steps > 1
        output = config.statistics_output if job.plan.analyzes else config.prediction_output
        if job.plan.gives_parts and output:
            folder = Path(output)
            kind, tell = config.prediction_format, self.meter.set_waits_for
            self._writer = PartWriter(folder, kind, job.plan, job.run, tell=tell)
        if not job.plan.analyzes:
            logger.info("loading TensorFlow, building the model")
        self._engine = self._make_engine(config, job.plan, job.partitions)
        built = self._engine.build()
        if config.is_allreduce:
            refuse_for_members(built)
            warn_of_large_embeddings(built)
            self._base = base_of_members(built, job)
            built = without_values(built)
        if instruction.check:
            self._engine.check()
        return built

    def _on_built(self, built: Built) -> None:
        self._built = built
        self._batch_calls = self._ready.batch_calls
        local = built.optimizer if self._local_steps else None
        is_alone = not self._config.joined_with(self._known_job.config).is_allreduce
        self._parameters = Parameters(built.layout, self._known_job.partitions, local, is_alone=is_alone)
        self._tasks = TaskComputing(
            self._ready,
            self._thread,
            self._known_job,
            self.meter,
            (self._stand, self._row_ids),
            self._tell,
            self._fail,
            self.on_fatal,
            self._writer,
        )
        dense = built.layout.dense
        if not self._known_job.plan.analyzes:
            logger.info("model built: parameters=%d variables=%d", dense.element_count, len(dense.variables))
        self.meter.state = "waiting"
        if built.export_wish is not None:
            self._tell(ExportWished(built.export_wish))
        base, self._base = self._base, None
        computes_ahead = self._batch_calls is None
        about = (bool(built.tables), built.callbacks, built.stops_on_nan, computes_ahead)
        sees_job_dir = self.sees_job_dir
        self._tell(ModelBuilt(*about, base=base, endpoint=self.endpoint, sees_job_dir=sees_job_dir))

    def _on_refused(self, error: BaseException) -> None:
        """The model cannot be built, or does not stand its check."""
        error = without_exit(error)
        self.on_fatal(error, is_mistake=isinstance(error, ModelError | ConfigError))

    def on_fatal(self, error: BaseException, *, is_mistake: bool = False) -> None:
        """Another attempt would end in the same way: the master ends the job."""
        if not isinstance(error, EdlzError):
            self._fail(error)
            return
        self._tell(Fatal(logged(failure_of(error, is_mistake=is_mistake))))

    def initial_values(self, to: SendInitialise) -> Initialise:
        """Return a partition's slices of the state before training."""
        built, job = self._built, self._known_job
        assert built is not None
        place = (to.index, job.partitions)
        dense, state = slice_of(built.dense, *place), slice_of(built.state, *place)
        counters = slice_of(built.counters, *place)
        values = (dense, state, counters)
        return Initialise(
            run=job.run,
            plan_hash=job.plan.hash,
            digest=initial_digest(job.plan.hash, built.layout, built.optimizer, built.tables, *values),
            layout=built.layout,
            optimizer=built.optimizer,
            tables=built.tables,
            dense=dense if to.with_values else None,
            state=state if to.with_values else None,
            counters=counters if to.with_values else None,
            incarnation=to.incarnation,
        )

    # -- training

    def begin(self, begin: Begin) -> None:
        def work() -> None:
            self._ready.begin(begin.task, begin.lane, end_at=begin.end_at, records=begin.records)

        self._thread.submit("task", work, _nothing, self._fail)

    def drop(self, drop: Drop) -> None:
        self._thread.submit("task", lambda: self._ready.drop(drop.task), _nothing, self._fail)

    def find_ids(self, find: FindIds) -> None:
        def work() -> tuple[RowIds, ...] | None:
            groups = self._ready.find_ids(find.task, find.index)
            return None if groups is None else self._row_ids(groups)

        def then(ids: tuple[RowIds, ...] | None) -> None:
            self._tell(IdsFound(find.task, find.index, find.attempt, ids))

        self._thread.submit(
            "ids", work, then, lambda error: self._on_training_error(error, find.task, find.attempt)
        )

    def _row_ids(self, groups: Sequence[GroupedIds]) -> tuple[RowIds, ...]:
        return row_ids([(group.ids, group.counts) for group in groups], self._known_job.partitions)

    def compute(self, compute: Compute) -> None:
        self.meter.begin("training", compute.task)

        def on_error(error: BaseException) -> None:
            self.meter.end(None)
            self._on_training_error(error, compute.task, compute.attempt)

        self._thread.submit(
            "step", lambda: self._step(compute), lambda step: self._on_step(compute, step), on_error
        )

    def _step(self, compute: Compute) -> _Step:
        """In the engine's thread: compute a minibatch, and look at one that follows."""
        engine, calls, version = self._ready, self._batch_calls, compute.version
        self._load(compute.vectors)
        if calls is not None:
            calls.on_batch_begin(version)
        computed = engine.compute(compute.task, compute.index, self._join(compute.ids, compute.rows))
        if calls is not None and computed.loss is not None:
            calls.on_batch_end(version, computed.loss)
        rate = compute.learning_rate
        rates = Rates(
            engine.learning_rate(version) if rate is None else rate, engine.table_rates(version, rate)
        )
        self._step_locally(computed, rates.model)
        return _Step(computed, rates, *self._look_ahead(compute.task, compute.ahead))

    def _step_locally(self, computed: Computed, learning_rate: float) -> None:
        """In the engine's thread: between pulls, the worker's own gradient moves its copy (async)."""
        if self._local_steps and computed.gradient is not None:
            assert self._parameters is not None
            self._ready.load(*self._parameters.step(computed.gradient, learning_rate))

    def _look_ahead(self, task: int, index: int | None) -> tuple[tuple[RowIds, ...] | None, bool]:
        """In the engine's thread: the ids of a later minibatch, and whether they could be found.

        What is wrong with that minibatch's records is its own affair, when its turn comes.
        """
        if index is None:
            return None, True
        try:
            groups = self._ready.find_ids(task, index)
        except TaskError:
            return None, False
        return (None if groups is None else self._row_ids(groups)), True

    def _load(self, parts: tuple[Exchanged, ...]) -> None:
        """In the engine's thread: make the model stand at these parameters."""
        assert self._parameters is not None
        began = time.perf_counter()
        vectors = self._parameters.assemble(parts)
        if vectors is not None:
            self._ready.load(*vectors)
        self.meter.pull_s += time.perf_counter() - began

    def _stand(self, parts: tuple[Exchanged, ...], ids: tuple[RowIds, ...]) -> tuple[Vector, ...]:
        """In the engine's thread: make the model stand at these parameters, and return its rows."""
        self._load(parts)
        return self._join(ids, parts)

    def _join(self, asked: tuple[RowIds, ...], answers: tuple[Exchanged, ...]) -> tuple[Vector, ...]:
        assert self._built is not None
        dims = [table.dim for table in self._built.tables]
        return join_rows(asked, [answer.rows for answer in answers], dims) if asked else ()

    def _on_step(self, compute: Compute, step: _Step) -> None:
        computed = step.computed
        self.meter.end(computed)
        self.meter.learning_rate = step.rates.model
        pushes = make_pushes(computed, step.rates, compute.ids, self._known_job.partitions, computed.loss)
        if computed.loss is not None:
            self._loss_log.note(compute.version, computed.loss, compute.task, computed.index)
        outcome = Outcome(computed.is_last, pushes, step.ahead, step.has_looked, computed.loss)
        self._tell(MinibatchComputed(compute.task, compute.attempt, outcome))

    def _on_training_error(self, error: BaseException, task: int, attempt: int) -> None:
        if not isinstance(error, TaskError):
            self.on_fatal(error)
            return
        logger.warning("%s\n%s", error.message, error.traceback)
        self._tell(TaskFailed(task, attempt, error.record("training", attempt=attempt)))

    # -- as a member of an all-reduce group

    def block_computing(
        self, tell: Callable[[SlotBegins | SlotComputed | SlotFailed | BlockComputed], None]
    ) -> BlockComputing:
        """Return what computes blocks of slots, when the model is built."""
        watch = BlockWatch(self.meter, self._loss_log)
        return BlockComputing(
            self._ready, self._thread, tell, self.on_fatal, watch=watch, calls=self._batch_calls
        )

    # -- whole tasks

    @property
    def tasks(self) -> TaskComputing:
        """What computes all that is no step of training, when the model is built."""
        assert self._tasks is not None, "the model is not built"
        return self._tasks


def _nothing(_: object) -> None:
    """Nothing follows from the answer."""

"""The shell of a worker: sockets in the event loop, Keras in one thread, the core between them.

TensorFlow never runs in the main thread: a signal would wait for the step, and the heartbeats as well.
"""

import asyncio
import contextlib
import faulthandler
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.configuration.endpoints import parse_endpoint
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, EdlzError, LocalProtocolError, ModelError
from edlz.services.parameters.store import initial_digest
from edlz.services.process.contact import Contact
from edlz.services.process.runtime import Stop, when_failed
from edlz.services.process.shell import Instructions, Shell
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    DoneEvaluation,
    EvaluationLease,
    EvaluationResult,
    Exchanged,
    ExportReport,
    Failure,
    Initialise,
    Job,
    PartFile,
    Push,
    RowIds,
    WorkerOrders,
)
from edlz.services.transport.rpc import RpcClient
from edlz.services.transport.security import Security
from edlz.services.worker.core.inputs import (
    Answered,
    Built,
    Computed,
    Concluded,
    Evaluated,
    EvaluationFailed,
    EvaluationIdsFound,
    Exported,
    ExportFailed,
    ExportWished,
    Fatal,
    IdsFound,
    Input,
    Ordered,
    OutputsComputed,
    TaskFailed,
    Tick,
)
from edlz.services.worker.core.instructions import (
    AskMaster,
    AskPartition,
    Begin,
    Build,
    Cancel,
    Compute,
    Conclude,
    Drop,
    Evaluate,
    Exit,
    ExportModel,
    FindEvaluationIds,
    FindIds,
    Instruction,
    Outcome,
    SendInitialise,
)
from edlz.services.worker.core.worker import TaskRunner
from edlz.services.worker.engine.user_code.user_code import TaskError, failure_of, without_exit
from edlz.services.worker.keras_thread import KerasThread
from edlz.services.worker.loss_log import LossLog
from edlz.services.worker.parameters import Parameters, slice_of, slice_push
from edlz.services.worker.part_writer import PartWriter
from edlz.services.worker.row_traffic import join_rows, row_ids, split_gradients
from edlz.services.worker.telemetry import Meter, State

if TYPE_CHECKING:
    from edlz.services.worker.engine.callbacks.calls import CallbackCalls
    from edlz.services.worker.engine.model.tables import GroupedIds
    from edlz.services.worker.engine.predictor import Predicted
    from edlz.services.worker.engine.trainer import Built as BuiltModel
    from edlz.services.worker.engine.trainer import Computed as ComputedStep
    from edlz.services.worker.engine.trainer import Trainer

__all__ = ["WorkerService"]

Vector = npt.NDArray[np.float32]

TICK_S = 0.05

logger = logging.getLogger(__name__)


class WorkerService(Shell[Input, Instruction]):
    """One life of a worker.

    Parameters
    ----------
    config : JobConfig
        This process's own flags; the job's come from the master.
    stop : Stop
        Set when the core says that it is over.
    """

    carries = Instructions["WorkerService"]()

    def __init__(self, config: JobConfig, stop: Stop) -> None:
        super().__init__(stop)
        self._config = config
        self._meter = Meter()
        self._keras = KerasThread(stop)
        self._core = TaskRunner(
            str(config.worker_id),
            secrets.randbits(62),
            self._meter.telemetry,
            lambda: self._keras.pace.told(time.monotonic()),
        )
        self._security = Security.of(config, "worker")
        self._master = RpcClient(
            config.master_endpoint, role="worker", identity=str(config.worker_id), security=self._security
        )
        self._contact = Contact(config.master_endpoint, config.orphan_secs)
        self._lines: dict[int, tuple[str, RpcClient]] = {}
        self._server_role = "ps"  # of the partitions' servers
        self._trainer: Trainer | None = None
        self._built: BuiltModel | None = None
        self._parameters: Parameters | None = None
        self._job: Job | None = None
        self._loss_log = LossLog(config.log_loss_steps)
        self._writer: PartWriter | None = None
        self._local_steps = False
        self._tells_losses = False  # callbacks are to know the mean
        self._batch_calls: CallbackCalls | None = None  # callbacks that are called at each minibatch
        when_failed(self._master.failed, self.fail)

    async def run(self) -> int:
        """Work until the job is over or the master says stop; return the exit code."""
        logger.info("Starting worker: %d, master=%s", self._config.worker_id, self._config.master_endpoint)
        try:
            while not self._stop.is_set:
                self.feed(Tick())
                if error := self._contact.on_tick(asyncio.get_running_loop().time()):
                    self.fail(error)
                await asyncio.sleep(TICK_S)
        finally:
            await self._close()
        self.raise_failure()
        return self._stop.code

    async def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._trainer is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._trainer.close)
        self._keras.close()
        for _, line in self._lines.values():
            line.close()
        self._master.close()

    # -- the core

    def decide(self, event: Input) -> list[Instruction]:
        if self._stop.is_set:
            return []
        return self._core.feed(event, asyncio.get_running_loop().time())

    def fail(self, error: BaseException) -> None:
        if (told := without_exit(error)) is not error:
            self._on_fatal(told)
            return
        super().fail(error)

    @carries.out(Exit)
    def _exit(self, instruction: Exit) -> None:
        logger.info("worker=%s ends: %s", self._core.worker, instruction.reason)
        self._stop.set(instruction.code, instruction.reason)

    # -- messages

    @carries.out(AskMaster)
    def _ask_master(self, instruction: AskMaster) -> None:
        status = instruction.body

        def on_answer(answer: Message | EdlzError) -> None:
            self._contact.on_heard()
            if isinstance(answer, WorkerOrders):
                if answer.dump:
                    self._dump_stacks()
                self._meter.reset(status.telemetry)
                self.feed(Ordered(answer))
            elif isinstance(answer, EdlzError):
                self.fail(answer)
            else:
                kind = type(answer).__name__
                self.fail(LocalProtocolError(f"the master answered a status with {kind}"))

        self._master.send(status, on_answer)

    @carries.out(AskPartition)
    def _ask_partition(self, instruction: AskPartition) -> None:
        index, key = instruction.index, instruction.key
        line = self._line_to(index, instruction.endpoint)
        began = time.perf_counter()
        line.send(instruction.body, lambda answer: self.feed(Answered(index, key, answer)))
        self._meter.push_s += time.perf_counter() - began

    def _line_to(self, index: int, endpoint: str) -> RpcClient:
        """Return the connection with a partition; if it was elsewhere, what it was asked there is forgotten."""
        known = self._lines.get(index)
        if known is None or known[0] != endpoint:
            self._hang_up(index)
            if self._is_elsewhere(endpoint):
                logger.warning(
                    "ps=%d says that it listens at %s, which is this machine; if it runs on another one"
                    " start it with --host=HOST",
                    index,
                    endpoint,
                )
            line = RpcClient(
                endpoint,
                role="worker",
                identity=str(self._config.worker_id),
                security=self._security,
                server=self._server_role,
            )
            when_failed(line.failed, self.fail)
            known = self._lines[index] = (endpoint, line)
        return known[1]

    def _is_elsewhere(self, endpoint: str) -> bool:
        """Whether a partition gives an address of its own machine, while the master is on another one."""
        return (
            parse_endpoint(self._config.master_endpoint).is_beyond and not parse_endpoint(endpoint).is_beyond
        )

    @carries.out(Cancel)
    def _cancel(self, instruction: Cancel) -> None:
        self._hang_up(instruction.index)

    def _hang_up(self, index: int) -> None:
        known = self._lines.pop(index, None)
        if known is not None:
            known[1].close()

    @carries.out(SendInitialise)
    def _send_initialise(self, instruction: SendInitialise) -> None:
        built, job = self._built, self._job
        assert built is not None
        assert job is not None
        place = (instruction.index, job.partitions)
        dense, state = slice_of(built.dense, *place), slice_of(built.state, *place)
        counters = slice_of(built.counters, *place)
        values = (dense, state, counters)
        body = Initialise(
            run=job.run,
            plan_hash=job.plan.hash,
            digest=initial_digest(job.plan.hash, built.layout, built.optimizer, built.tables, *values),
            layout=built.layout,
            optimizer=built.optimizer,
            tables=built.tables,
            dense=dense if instruction.with_values else None,
            state=state if instruction.with_values else None,
            counters=counters if instruction.with_values else None,
            incarnation=instruction.incarnation,
        )
        self._ask_partition(AskPartition(instruction.index, instruction.endpoint, instruction.key, body))

    # -- Keras

    def _dump_stacks(self) -> None:
        logger.warning("this worker makes no progress and is given up; its threads are here:")
        faulthandler.dump_traceback(all_threads=True)

    @property
    def _ready_trainer(self) -> "Trainer":
        assert self._trainer is not None, "the model is not built"
        return self._trainer

    @carries.out(Build)
    def _begin_building(self, instruction: Build) -> None:
        job, check = instruction.job, instruction.check
        self._job = job
        self._server_role = "master" if self._core.settings.hosts_partition else "ps"
        self._keras.submit("build", lambda: self._build(job, check), self._on_built, self._on_refused)

    def _build(self, job: Job, check: bool) -> "BuiltModel":
        config = self._config.joined_with(job.config)
        self._loss_log.every = config.log_loss_steps
        self._local_steps = not job.plan.is_sync and config.get_model_steps > 1
        if job.plan.predicts and config.prediction_output:
            folder = Path(config.prediction_output)
            kind, tell = config.prediction_format, self._meter.set_waits_for
            self._writer = PartWriter(folder, kind, job.plan, job.run, tell=tell)
        logger.info("loading TensorFlow, building the model")
        from edlz.services.worker.engine.trainer import Trainer

        self._trainer = Trainer(config, job.plan, job.partitions)
        built = self._trainer.build()
        if check:
            self._trainer.check()
        return built

    def _on_built(self, built: "BuiltModel") -> None:
        assert self._job is not None
        self._built = built
        self._tells_losses = built.callbacks is not None and built.callbacks.runs
        self._batch_calls = self._ready_trainer.batch_calls
        local = built.optimizer if self._local_steps else None
        self._parameters = Parameters(built.layout, self._job.partitions, local)
        dense = built.layout.dense
        logger.info("model built: parameters=%d variables=%d", dense.element_count, len(dense.variables))
        self._meter.state = "waiting"
        if built.export_wish is not None:
            self.feed(ExportWished(built.export_wish))
        self.feed(Built(bool(built.tables), built.callbacks, built.stops_on_nan))

    def _on_refused(self, error: BaseException) -> None:
        """The model cannot be built, or does not stand its check."""
        error = without_exit(error)
        self._on_fatal(error, is_mistake=isinstance(error, ModelError | ConfigError))

    def _on_fatal(self, error: BaseException, *, is_mistake: bool = False) -> None:
        """Another attempt would end in the same way: the master ends the job."""
        if not isinstance(error, EdlzError):
            self.fail(error)
            return
        self.feed(Fatal(_logged(failure_of(error, is_mistake=is_mistake))))

    # -- rows

    def _row_ids(self, groups: "Sequence[GroupedIds]") -> tuple[RowIds, ...]:
        assert self._job is not None
        return row_ids([(group.ids, group.counts) for group in groups], self._job.partitions)

    def _look_ahead(self, task: int, index: int | None) -> tuple[tuple[RowIds, ...] | None, bool]:
        """In Keras' thread: the ids of a later minibatch, and whether they could be found.

        What is wrong with that minibatch's records is its own affair, when its turn comes.
        """
        if index is None:
            return None, True
        try:
            groups = self._ready_trainer.find_ids(task, index)
        except TaskError:
            return None, False
        return (None if groups is None else self._row_ids(groups)), True

    @carries.out(Begin)
    def _begin(self, begin: Begin) -> None:
        def work() -> None:
            self._ready_trainer.begin(begin.task, begin.lane, end_at=begin.end_at)

        self._keras.submit("task", work, _nothing, self.fail)

    @carries.out(Drop)
    def _drop(self, drop: Drop) -> None:
        self._keras.submit("task", lambda: self._ready_trainer.drop(drop.task), _nothing, self.fail)

    def _join(self, asked: tuple[RowIds, ...], answers: tuple[Exchanged, ...]) -> "tuple[Vector, ...]":
        assert self._built is not None
        dims = [table.dim for table in self._built.tables]
        return join_rows(asked, [answer.rows for answer in answers], dims) if asked else ()

    @carries.out(FindIds)
    def _find_ids(self, find: FindIds) -> None:
        def work() -> tuple[RowIds, ...] | None:
            groups = self._ready_trainer.find_ids(find.task, find.index)
            return None if groups is None else self._row_ids(groups)

        def then(ids: tuple[RowIds, ...] | None) -> None:
            self.feed(IdsFound(find.task, find.index, find.attempt, ids))

        self._keras.submit(
            "ids", work, then, lambda error: self._on_training_error(error, find.task, find.attempt)
        )

    @carries.out(FindEvaluationIds)
    def _find_evaluation_ids(self, find: FindEvaluationIds) -> None:
        lease = find.lease

        def work() -> tuple[RowIds, ...]:
            return self._row_ids(self._ready_trainer.evaluation_ids(lease.task, lease.records))

        def then(ids: tuple[RowIds, ...]) -> None:
            self.feed(EvaluationIdsFound((lease.round, lease.task), ids))

        self._keras.submit(
            "evaluation ids", work, then, lambda error: self._on_evaluation_error(error, lease)
        )

    # -- computing

    @carries.out(Compute)
    def _compute(self, compute: Compute) -> None:
        self._meter.begin("training", compute.task)

        def work() -> "tuple[ComputedStep, Push, tuple[RowIds, ...] | None, bool]":
            trainer, calls = self._ready_trainer, self._batch_calls
            self._load(compute.parts)
            if calls is not None:
                calls.on_batch_begin(compute.version)
            computed = trainer.compute(compute.task, compute.index, self._join(compute.ids, compute.rows))
            if calls is not None and computed.loss is not None:
                calls.on_batch_end(compute.version, computed.loss)
            rate = compute.learning_rate
            push = Push(
                task=compute.task,
                index=computed.index,
                is_last=computed.is_last,
                learning_rate=trainer.learning_rate(compute.version) if rate is None else rate,
                table_rates=trainer.table_rates(compute.version, rate),
                loss=computed.loss if self._tells_losses else None,
                gradient=computed.gradient,
                state=computed.state,
                counters=computed.counters,
            )
            self._step_locally(push)
            return computed, push, *self._look_ahead(compute.task, compute.ahead)

        def on_error(error: BaseException) -> None:
            self._meter.end(None)
            self._on_training_error(error, compute.task, compute.attempt)

        self._keras.submit("step", work, lambda result: self._on_computed(compute, *result), on_error)

    def _on_training_error(self, error: BaseException, task: int, attempt: int) -> None:
        if not isinstance(error, TaskError):
            self._on_fatal(error)
            return
        logger.warning("%s\n%s", error.message, error.traceback)
        self.feed(TaskFailed(task, attempt, error.record("training", attempt=attempt)))

    def _step_locally(self, push: Push) -> None:
        """In Keras' thread: between pulls, the worker's own gradient moves its copy (async)."""
        if self._local_steps and push.gradient is not None:
            assert self._parameters is not None
            self._ready_trainer.load(*self._parameters.step(push.gradient, push.learning_rate))

    def _load(self, parts: tuple[Exchanged, ...]) -> None:
        """In Keras' thread: make the model stand at these parameters."""
        assert self._parameters is not None
        began = time.perf_counter()
        vectors = self._parameters.assemble(parts)
        if vectors is not None:
            self._ready_trainer.load(*vectors)
        self._meter.pull_s += time.perf_counter() - began

    def _on_computed(
        self,
        compute: Compute,
        computed: "ComputedStep",
        whole: Push,
        ahead: tuple[RowIds, ...] | None,
        has_looked: bool,
    ) -> None:
        assert self._job is not None
        self._meter.end(computed)
        count = self._job.partitions
        pushes = tuple(slice_push(whole, p, count) for p in range(count))
        if compute.ids and computed.gradient is not None:
            gradients = split_gradients(compute.ids, computed.row_gradients)
            pushes = tuple(
                msgspec.structs.replace(push, rows=asked, row_gradients=part)
                for push, asked, part in zip(pushes, compute.ids, gradients, strict=True)
            )
        if computed.loss is not None:
            self._loss_log.note(compute.version, computed.loss, compute.task, computed.index)
        outcome = Outcome(computed.is_last, pushes, ahead, has_looked, computed.loss)
        self.feed(Computed(compute.task, compute.attempt, outcome))

    @carries.out(Evaluate)
    def _evaluate(self, evaluate: Evaluate) -> None:
        assert self._job is not None
        if self._job.plan.predicts:
            self._predict(evaluate)
            return
        lease = evaluate.lease

        def work() -> Any:
            self._load(evaluate.parts)
            rows = self._join(evaluate.ids, evaluate.parts)
            return self._ready_trainer.evaluate(lease.task, lease.records, rows)

        def then(result: Any) -> None:
            records, states = result
            done = DoneEvaluation(round=lease.round, task=lease.task, records=records, states=states)
            self.feed(Evaluated(done))

        self._submit_whole(
            "evaluation", "evaluating", work, then, lambda error: self._on_evaluation_error(error, lease)
        )

    def _predict(self, evaluate: Evaluate) -> None:
        lease = evaluate.lease

        def work() -> "Predicted":
            self._load(evaluate.parts)
            rows = self._join(evaluate.ids, evaluate.parts)
            return self._ready_trainer.predict(lease.task, lease.records, rows, lease.attempt)

        self._submit_whole(
            "prediction",
            "predicting",
            work,
            lambda predicted: self._deliver(lease, predicted),
            lambda error: self._on_evaluation_error(error, lease),
        )

    def _submit_whole(
        self,
        kind: str,
        state: State,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Submit work that is no step; while it lasts the meter shows the worker in this state."""
        self._meter.begin(state, None)

        def ended(tell: Callable[[Any], None]) -> Callable[[Any], None]:
            def end(value: Any) -> None:
                self._meter.end(None)
                tell(value)

            return end

        self._keras.submit(kind, work, ended(then), ended(on_error))

    def _deliver(self, lease: EvaluationLease, predicted: "Predicted") -> None:
        """Report a task's outputs once they are written, if they are to be."""

        def report(part: PartFile | None) -> None:
            done = DoneEvaluation(
                round=lease.round, task=lease.task, records=predicted.records, states={}, part=part
            )
            self.feed(Evaluated(done))

        if predicted.table is None or self._writer is None:
            report(None)
            return
        loop = asyncio.get_running_loop()
        self.feed(OutputsComputed((lease.round, lease.task)))
        self._writer.submit(
            lease.task,
            predicted.table,
            lambda part: _in_loop(loop, report, part),
            lambda error: _in_loop(loop, self._on_fatal, error),
        )

    def _on_evaluation_error(self, error: BaseException, lease: EvaluationLease) -> None:
        if not isinstance(error, TaskError):
            self._on_fatal(error)
            return
        logger.warning("%s\n%s", error.message, error.traceback)
        attempt = secrets.randbits(31)
        failed = error.record("evaluation", round=lease.round, attempt=attempt)
        self.feed(EvaluationFailed(failed))

    @carries.out(Conclude)
    def _conclude(self, conclude: Conclude) -> None:
        conclusion = conclude.conclusion
        trainer, shown = self._ready_trainer, conclusion.shown

        def work() -> EvaluationResult:
            metrics = trainer.conclude(conclusion.states)
            decision = None if shown is None else trainer.decide(shown, metrics)
            return EvaluationResult(round=conclusion.round, metrics=metrics, decision=decision)

        def then(result: EvaluationResult) -> None:
            self.feed(Concluded(result))

        self._keras.submit("conclusion", work, then, self._on_fatal)

    # -- the end

    @carries.out(ExportModel)
    def _export(self, instruction: ExportModel) -> None:
        lease = instruction.lease

        def work() -> ExportReport:
            from edlz.services.export.finished_job import export_finished

            assert self._job is not None
            config = self._config.joined_with(self._job.config)
            return export_finished(config, self._job, lease, self._on_export_progress)

        def on_error(error: BaseException) -> None:
            error = without_exit(error)
            if isinstance(error, Exception):
                self.feed(ExportFailed(_logged(failure_of(error))))
            else:
                self.fail(error)

        self._submit_whole("export", "exporting", work, lambda report: self.feed(Exported(report)), on_error)

    def _on_export_progress(self) -> None:
        """In Keras' thread: a table may take hours, and each part of one is a piece of work."""
        self._keras.pace.begin("export", time.monotonic())


def _logged(failure: Failure) -> Failure:
    """Leave all that is known of a failure in the log: the master says what it is."""
    if failure.traceback:
        logger.info("%s\n%s", failure.message, failure.traceback)
    return failure


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[Any], None], value: Any) -> None:
    """Call from another thread; once the loop is closed nobody wants to know."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, value)


def _nothing(_: object) -> None:
    """Nothing follows from the answer."""

"""What a worker computes of whole tasks, and of the job: evaluation, prediction, analysis, results of a round, the export."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.services.process.shell import Fail
from edlz.services.protocol.messages import (
    DoneEvaluation,
    EvaluationLease,
    EvaluationResult,
    Exchanged,
    ExportReport,
    Failure,
    Job,
    MetricState,
    PartFile,
    RowIds,
)
from edlz.services.worker.core.computation import Engine, GroupedIds, Predicted
from edlz.services.worker.core.inputs import (
    Concluded,
    Evaluated,
    EvaluationFailed,
    EvaluationIdsFound,
    Exported,
    ExportFailed,
    Input,
    OutputsComputed,
)
from edlz.services.worker.core.instructions import Conclude, Evaluate, ExportModel, FindEvaluationIds
from edlz.services.worker.engine.user_code.user_code import TaskError, failure_of, without_exit
from edlz.services.worker.keras_thread import KerasThread
from edlz.services.worker.part_writer import PartWriter
from edlz.services.worker.telemetry import Meter, State

__all__ = ["TaskComputing", "logged"]

Vector = npt.NDArray[np.float32]
Stand = Callable[[tuple[Exchanged, ...], tuple[RowIds, ...]], tuple[Vector, ...]]
GroupIds = Callable[[Sequence[GroupedIds]], tuple[RowIds, ...]]

logger = logging.getLogger(__name__)


class TaskComputing:
    """Drives an engine that is built, for all that is no step of training.

    Parameters
    ----------
    engine : Engine
    thread : KerasThread
        The one that the engine runs in.
    job : Job
    meter : Meter
        Shows what is under way.
    model : Stand, GroupIds
        In the engine's thread: the first has the model stand at these parameters, and returns the rows of these ids of
        them; the second returns what each partition is asked for ids.
    tell : callable (Input) -> None
        Feeds the worker's core.
    fail, on_fatal : callable
        Ends the worker; and the job.
    writer : PartWriter, optional
        Writes predictions or statistics.
    """

    def __init__(
        self,
        engine: Engine,
        thread: KerasThread,
        job: Job,
        meter: Meter,
        model: tuple[Stand, GroupIds],
        tell: Callable[[Input], None],
        fail: Fail,
        on_fatal: Fail,
        writer: PartWriter | None = None,
    ) -> None:
        self._engine, self._thread, self._job, self._meter, self._writer = engine, thread, job, meter, writer
        self._stand, self._group_ids = model
        self._tell, self._fail, self._on_fatal = tell, fail, on_fatal

    # -- evaluation, prediction and analysis

    def find_ids(self, find: FindEvaluationIds) -> None:
        """Find out which rows a task's records look up."""
        lease = find.lease

        def work() -> tuple[RowIds, ...]:
            return self._group_ids(self._engine.evaluation_ids(lease.task, lease.records))

        def then(ids: tuple[RowIds, ...]) -> None:
            self._tell(EvaluationIdsFound((lease.round, lease.task), ids))

        self._thread.submit("evaluation ids", work, then, lambda error: self._on_error(error, lease))

    def evaluate(self, evaluate: Evaluate) -> None:
        """Do what the job does with a task that is not trained on."""
        if self._job.plan.gives_parts:
            self._predict(evaluate)
            return
        lease = evaluate.lease

        def work() -> tuple[int, MetricState]:
            rows = self._stand(evaluate.vectors, evaluate.ids)
            return self._engine.evaluate(lease.task, lease.records, rows)

        def then(result: tuple[int, MetricState]) -> None:
            records, states = result
            done = DoneEvaluation(round=lease.round, task=lease.task, records=records, states=states)
            self._tell(Evaluated(done))

        self._submit("evaluation", "evaluating", work, then, lambda error: self._on_error(error, lease))

    def _predict(self, evaluate: Evaluate) -> None:
        lease = evaluate.lease

        def work() -> Predicted:
            rows = self._stand(evaluate.vectors, evaluate.ids)
            return self._engine.predict(lease.task, lease.records, rows, lease.attempt)

        analyzes = self._job.plan.analyzes
        self._submit(
            "analysis" if analyzes else "prediction",
            "analyzing" if analyzes else "predicting",
            work,
            lambda predicted: self._deliver(lease, predicted),
            lambda error: self._on_error(error, lease),
        )

    def _deliver(self, lease: EvaluationLease, predicted: Predicted) -> None:
        """Report a task's outputs once they are written, if they are to be."""

        def report(part: PartFile | None) -> None:
            done = DoneEvaluation(
                round=lease.round, task=lease.task, records=predicted.records, states={}, part=part
            )
            self._tell(Evaluated(done))

        if predicted.table is None or self._writer is None:
            report(None)
            return
        loop = asyncio.get_running_loop()
        self._tell(OutputsComputed((lease.round, lease.task)))
        self._writer.submit(
            lease.task,
            predicted.table,
            lambda part: _in_loop(loop, report, part),
            lambda error: _in_loop(loop, self._on_fatal, error),
        )

    def _on_error(self, error: BaseException, lease: EvaluationLease) -> None:
        if not isinstance(error, TaskError):
            self._on_fatal(error)
            return
        logger.warning("%s\n%s", error.message, error.traceback)
        attempt = secrets.randbits(31)
        self._tell(EvaluationFailed(error.record("evaluation", round=lease.round, attempt=attempt)))

    def conclude(self, conclude: Conclude) -> None:
        """Compute the metrics of a round whose tasks are evaluated, and what callbacks decide on them."""
        engine, conclusion, shown = self._engine, conclude.conclusion, conclude.conclusion.shown

        def work() -> EvaluationResult:
            metrics = engine.conclude(conclusion.states)
            decision = None if shown is None else engine.decide(shown, metrics)
            return EvaluationResult(round=conclusion.round, metrics=metrics, decision=decision)

        self._thread.submit("conclusion", work, lambda result: self._tell(Concluded(result)), self._on_fatal)

    # -- the export

    def export(self, instruction: ExportModel) -> None:
        """Write the job's model."""

        def work() -> ExportReport:
            return self._engine.export(self._job, instruction.lease, self._on_export_progress)

        def on_error(error: BaseException) -> None:
            error = without_exit(error)
            if isinstance(error, Exception):
                self._tell(ExportFailed(logged(failure_of(error))))
            else:
                self._fail(error)

        self._submit("export", "exporting", work, lambda report: self._tell(Exported(report)), on_error)

    def _on_export_progress(self) -> None:
        """In the engine's thread: a table may take hours, and each part of one is a piece of work."""
        self._thread.pace.begin("export", time.monotonic())

    def _submit(
        self,
        kind: str,
        state: State,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Have this done; while it lasts the meter shows the worker in this state."""
        self._meter.begin(state, None)

        def ended(tell: Callable[[Any], None]) -> Callable[[Any], None]:
            def end(value: Any) -> None:
                self._meter.end(None)
                tell(value)

            return end

        self._thread.submit(kind, work, ended(then), ended(on_error))


def logged(failure: Failure) -> Failure:
    """Leave all that is known of a failure in the log, and return it: the master says what it is."""
    if failure.traceback:
        logger.info("%s\n%s", failure.message, failure.traceback)
    return failure


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[Any], None], value: Any) -> None:
    """Call from another thread; once the loop is closed nobody wants to know."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, value)

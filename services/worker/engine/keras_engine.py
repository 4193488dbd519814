"""The facade of everything that touches TensorFlow: what the worker's shell drives from one thread.

NumPy in, NumPy out.  Importing this module is cheap: TensorFlow is imported by `KerasEngine.build`.  All calls
must come from one thread, and not from the main one: there a signal would wait for the step to end.
"""

import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError, LocalProtocolError
from edlz.services.export.finished_job import export_finished
from edlz.services.protocol.concluded_rounds import CallbackNeeds, Decision, ShownRound
from edlz.services.protocol.messages import ExportLease, ExportReport, Job, MetricState
from edlz.services.protocol.plan import Plan, TaskRange
from edlz.services.protocol.seeds import derive_seed
from edlz.services.worker.core.computation import Built, Computed, GroupedIds, Predicted
from edlz.services.worker.engine.feed.task_reader import TaskReader
from edlz.services.worker.engine.tensorflow.environment import importing_tensorflow
from edlz.services.worker.engine.user_code.user_code import TaskError, UserCodeError

if TYPE_CHECKING:  # it imports TensorFlow
    from edlz.services.worker.engine.assembly import Assembly
    from edlz.services.worker.engine.callbacks.calls import CallbackCalls
    from edlz.services.worker.engine.model_check import ModelCheck, TriedMinibatch
    from edlz.services.worker.engine.step import Gradient

__all__ = ["KerasEngine", "TaskError", "UserCodeError"]

_STEP_SEED = 2  # a name for derive_seed; 0 and 1 are the plan's orders
_SEED_SHIFT = 2  # 62 bits: room for more of them in signed 64-bit numbers


class KerasEngine:
    """The model of one job, in this process.

    Parameters
    ----------
    partitions : int
        Parameter servers: each owns a part of the embedding tables' ids.
    """

    def __init__(self, config: JobConfig, plan: Plan, partitions: int = 1) -> None:
        self._partitions = partitions
        # A plan of its own: a plan keeps orders that it has worked out, and has no lock.
        self._config, self._plan = config, msgspec.structs.replace(plan)
        self._reader = TaskReader(plan)
        self._ranges: dict[int, TaskRange] = {}  # of tasks in hand that the plan does not know
        self._assembly: Assembly | None = None

    # -- the model

    def build(self) -> Built:
        """Import TensorFlow, load the user's module, build and trace everything.

        Raises
        ------
        ModelError
            If the module lacks something, its code raises, or the model is of a kind that cannot be
            trained.  A UserCodeError has the user's frame and the traceback.
        DataError
            If the job's first records cannot be read.
        """
        assembly: Assembly = self._tensorflow_side().assemble(
            self._config, self._plan, self._reader, self._partitions
        )
        self._assembly = assembly
        updates, calls = assembly.updates, assembly.callbacks
        needs = CallbackNeeds(
            runs=calls is not None,
            decides=calls is not None and calls.decides,
            max_steps=assembly.max_steps,
        )
        return Built(
            assembly.built.layout,
            updates.optimizer,
            *assembly.take_initial(),
            updates.tables,
            updates.export_wish,
            None if needs == CallbackNeeds() else needs,
            assembly.stops_on_nan,
        )

    def check(self) -> "TriedMinibatch | None":
        """Try the model on one minibatch, before anything else is computed; None if none was found in time.

        Raises
        ------
        ModelError
            If it cannot be trained; a UserCodeError has the line of the user's code.
        DataError
            If the records cannot be read.
        """
        check: ModelCheck = self._tensorflow_side().ModelCheck(self, self._ready, self._plan)
        return check.run()

    def learning_rate(self, version: int) -> float:
        """Return the learning rate of the step from `version` (updates so far) to version + 1."""
        return self._ready.updates.learning_rate(version)

    def table_rates(self, version: int, rate: float | None = None) -> tuple[float, ...]:
        """Return the learning rate of each table for the same step; nothing, if all have the model's.

        Parameters
        ----------
        rate : float, optional
            In place of the model's.
        """
        return self._ready.updates.table_rates(version, rate)

    def load(
        self,
        dense: npt.NDArray[np.float32],
        state: npt.NDArray[np.float32],
        counters: npt.NDArray[np.int64],
    ) -> None:
        """Take these vectors for what is computed from now on; before it, the initial ones are loaded.

        They are not copied: they may be written again once another `load` has taken their place, and not
        while a computation runs.

        Parameters
        ----------
        dense, state, counters : ndarray
            Padded as the layout says, 64-byte aligned, writable.

        Raises
        ------
        LocalProtocolError
            If they are not so.
        """
        self._ready.load(dense, state, counters)

    # -- training

    def begin(
        self,
        task: int,
        lane: int = 0,
        first: int = 0,
        end_at: int | None = None,
        records: TaskRange | None = None,
    ) -> None:
        """Take a training task in hand: its records are read ahead.  A task in hand stays as it is.

        Parameters
        ----------
        lane : int
            Tasks that are computed in turns need lanes of their own; those that follow one another, the
            same one.
        first : int
            The first minibatch that will be computed.
        end_at : int, optional
            The first one that will not, nor be looked at: the user's code raises on it.
        records : TaskRange, optional
            Its records, if they are not those that the plan has.
        """
        lanes = self._ready.lanes
        if records is not None:
            self._ranges[task] = records
        if not lanes.has(task):
            of_task = self._ranges.get(task) or self._plan.task_range(task)
            lanes.begin(task, of_task, lane, first, end_at)

    def find_ids(self, task: int, index: int) -> tuple[GroupedIds, ...] | None:
        """Return which rows minibatch (task, index) looks up, reading ahead as far as need be.

        Does not change what `compute` gives, and in which order; not behind what that has computed.

        Returns
        -------
        tuple of GroupedIds, one for each table
            None if the task ends before this minibatch.  The first of a task without any looks up nothing.

        Raises
        ------
        TaskError
            As `compute`.
        """
        self.begin(task, first=index)
        found = self._ready.finder.find(task, index)
        return None if found is None else found.groups

    def compute(self, task: int, index: int, rows: Sequence[npt.NDArray[np.float32]] = ()) -> Computed:
        """Compute the gradient of minibatch (task, index) on the loaded vectors.

        Minibatches of a task come in ascending order for free; any other order is right too.

        Parameters
        ----------
        rows : sequence of ndarray, shape (m, dim), float32
            For each table its rows in the order of `find_ids`; only read, and not later on.  Those that are
            64-byte aligned and writable are not copied.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them; the task is out of hand then.
        """
        assembly = self._ready
        started = time.perf_counter()
        self.begin(task, first=index)
        minibatch = assembly.lanes.minibatch(task, index)
        read = time.perf_counter()
        found = assembly.finder.take(minibatch)
        if minibatch.element is None:
            return self._without_records(task, index, read - started)
        step = self._step(task, index, minibatch.element, found.inputs(rows) if found else ())
        if assembly.slow_feed is not None:
            assembly.slow_feed.note(read - started, time.perf_counter() - read)
        of_rows = found.sum(step.row_gradients) if found else ()
        ids = [group.ids for group in found.groups] if found else ()
        return Computed(
            task=task,
            index=index,
            is_last=minibatch.is_last,
            gradient=assembly.updates.clipping(step.dense, of_rows, ids),
            state=step.state,
            counters=step.counters,
            loss=step.loss,
            records=step.records,
            read_s=read - started,
            compute_s=time.perf_counter() - read,
            row_gradients=of_rows,
        )

    def _without_records(self, task: int, index: int, read_s: float) -> Computed:
        """Return what comes of a task's last minibatch if its feed keeps no record."""
        none = tuple(np.empty((0, table.dim), np.float32) for table in self._ready.updates.tables)
        return Computed(task, index, True, None, None, None, None, 0, read_s, 0.0, none)

    def _step(self, task: int, index: int, element: Any, inputs: tuple[Any, ...]) -> "Gradient":
        """Run the step, and explain what it raises; the task is out of hand then."""
        assembly, seed = self._ready, derive_seed(self._plan.seed, _STEP_SEED, task, index) >> _SEED_SHIFT
        try:
            return assembly.step(element, seed, assembly.vectors, inputs)
        except EdlzError:
            raise
        except Exception as e:
            self._put_down(task)
            raise assembly.step.explain(task, index, e, element, inputs) from e

    def drop(self, task: int) -> None:
        """Give a training task up, in the middle or at its end; nothing happens if it is not in hand."""
        self._ranges.pop(task, None)
        self._put_down(task)

    def _put_down(self, task: int) -> None:
        if self._assembly is not None:
            self._assembly.lanes.drop(task)
            self._assembly.finder.drop(task)

    # -- evaluation

    def evaluation_ids(self, task: int, records: TaskRange) -> tuple[GroupedIds, ...]:
        """Read an evaluation or prediction task, and return which rows all its minibatches look up, by table.

        The minibatches are kept for `evaluate` or `predict`, which should follow.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them.
        """
        assembly = self._ready
        return (assembly.predictor if self._plan.predicts else assembly.evaluator).find_ids(task, records)

    def evaluate(
        self, task: int, records: TaskRange, rows: Sequence[npt.NDArray[np.float32]] = ()
    ) -> tuple[int, MetricState]:
        """Evaluate one evaluation task on the loaded vectors.

        Parameters
        ----------
        rows : sequence of ndarray, shape (m, dim), float32
            For each table its rows in the order of `evaluation_ids`.

        Returns
        -------
        rows : int
        states : dict of lists of ndarray, float64
            The sums that the metrics consist of.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them.
        """
        return self._ready.evaluator.evaluate(task, records, self._ready.vectors, rows)

    def predict(
        self,
        task: int,
        records: TaskRange,
        rows: Sequence[npt.NDArray[np.float32]] = (),
        attempt: int = 0,
    ) -> Predicted:
        """Compute the outputs of a prediction task on the loaded vectors; see `Predictor.predict`."""
        return self._ready.predictor.predict(task, records, self._ready.vectors, rows, attempt)

    def conclude(self, states: MetricState) -> dict[str, float]:
        """Return the metrics of a round from the sum of its tasks' states; of none if nothing was evaluated."""
        return self._ready.evaluator.conclude(states) if states else {}

    # -- callbacks

    def decide(self, shown: ShownRound, metrics: dict[str, float]) -> Decision:
        """Show a round to the user's callbacks, and return what they decide.

        Raises
        ------
        ModelError
            If one of them raises, or does what it cannot do.
        """
        calls = self._ready.callbacks
        if calls is None:  # the job was resumed without those that it had
            return Decision(logs=metrics)
        return calls.conclude(shown, metrics)

    @property
    def batch_calls(self) -> "CallbackCalls | None":
        """Callbacks that want to be called at each minibatch."""
        calls = self._ready.callbacks
        return calls if calls is not None and calls.sees_batches else None

    # -- the end

    def export(self, job: Job, lease: ExportLease, on_progress: Callable[[], None]) -> ExportReport:
        """Export the finished model; see `export_finished`."""
        return export_finished(self._config, job, lease, on_progress)

    def close(self) -> None:
        """Let go of files and threads; the engine is of no use afterwards."""
        if self._assembly is not None:
            self._assembly.close()
        self._reader.close()

    def _tensorflow_side(self) -> ModuleType:
        with importing_tensorflow(self._config):
            # Not above: it imports TensorFlow, for which the environment has to be prepared, and which takes seconds.
            from edlz.services.worker.engine import building

        return building

    @property
    def _ready(self) -> "Assembly":
        if self._assembly is None:
            raise LocalProtocolError("the model is not built yet")
        return self._assembly

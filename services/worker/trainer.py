"""The facade of everything that touches TensorFlow: what the worker's shell drives from one thread.

NumPy in, NumPy out.  Importing this module is cheap: TensorFlow is imported by `Trainer.build`.  All calls
must come from one thread, and not from the main one: there a signal would wait for the step to end.
"""

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.config import JobConfig
from edlz.services.errors import EdlzError, LocalProtocolError
from edlz.services.layout import Layout
from edlz.services.messages import MetricState, OptimizerSpec
from edlz.services.plan import Plan, TaskRange
from edlz.services.seeds import derive_seed
from edlz.services.worker.task_reader import TaskReader
from edlz.services.worker.user_code import TaskError, UserCodeError

if TYPE_CHECKING:  # it imports TensorFlow
    from edlz.services.worker.assembly import Assembly

__all__ = ["Built", "Computed", "TaskError", "Trainer", "UserCodeError"]

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"  # read by TensorFlow when it is imported
_STEP_SEED = 2  # a name for derive_seed; 0 and 1 are the plan's orders
_SEED_SHIFT = 2  # 62 bits: room for more of them in signed 64-bit numbers


@dataclass(frozen=True, slots=True)
class Built:
    """A model before training, the same in every process.

    Attributes
    ----------
    dense, state : ndarray, float32; counters : ndarray, int64
        Padded as the layout says, 64-byte aligned.
    """

    layout: Layout
    optimizer: OptimizerSpec
    dense: npt.NDArray[np.float32]
    state: npt.NDArray[np.float32]
    counters: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Computed:
    """What minibatch (task, index) gave on the loaded vectors.

    Attributes
    ----------
    gradient : ndarray, shape (layout.dense.size,), float32, read-only, padding 0
        None, and so are the three below, for the empty minibatch of a task without any.
    state, counters : ndarray, shapes as in the layout, read-only
        What the step assigned.
    loss : float
        Regularisation included.
    records : int
        Rows of the minibatch.
    read_s, compute_s : float
        Seconds that the minibatch was waited for, and that the step took.
    """

    task: int
    index: int
    is_last: bool
    gradient: npt.NDArray[np.float32] | None
    state: npt.NDArray[np.float32] | None
    counters: npt.NDArray[np.int64] | None
    loss: float | None
    records: int
    read_s: float
    compute_s: float


class Trainer:
    """The model of one job, in this process."""

    def __init__(self, config: JobConfig, plan: Plan) -> None:
        # A plan of its own: a plan keeps orders that it has worked out, and has no lock.
        self._config, self._plan = config, msgspec.structs.replace(plan)
        self._reader = TaskReader(plan)
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
        if "tensorflow" not in sys.modules:
            os.environ[_ONEDNN] = "1" if self._config.onednn else "0"
        from edlz.services.worker.assembly import Assembly

        assembly = self._assembly = Assembly(self._config, self._plan, self._reader)
        return Built(assembly.built.layout, assembly.optimizer.spec, *assembly.initial)

    def learning_rate(self, version: int) -> float:
        """Return the learning rate of the step from `version` (updates so far) to version + 1."""
        return self._ready.optimizer.learning_rate(version)

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

    def begin(self, task: int, lane: int = 0, first: int = 0) -> None:
        """Take a training task in hand: its records are read ahead.  A task in hand stays as it is.

        Parameters
        ----------
        lane : int
            Tasks that are computed in turns need lanes of their own; those that follow one another, the
            same one.
        first : int
            The first minibatch that will be computed.
        """
        lanes = self._ready.lanes
        if not lanes.has(task):
            lanes.begin(task, self._plan.task_range(task), lane, first)

    def compute(self, task: int, index: int) -> Computed:
        """Compute the gradient of minibatch (task, index) on the loaded vectors.

        Minibatches of a task come in ascending order for free; any other order is right too.

        Raises
        ------
        TaskError
            If the task's records cannot be read, or the user's code raises on them; the task is out of
            hand then.
        """
        parts = self._ready
        started = time.perf_counter()
        self.begin(task, first=index)
        minibatch = parts.lanes.minibatch(task, index)
        read = time.perf_counter()
        if minibatch.element is None:
            return Computed(task, index, True, None, None, None, None, 0, read - started, 0.0)
        seed = derive_seed(self._plan.seed, _STEP_SEED, task, index) >> _SEED_SHIFT
        try:
            step = parts.step(minibatch.element, seed, parts.vectors)
        except EdlzError:
            raise
        except Exception as e:
            parts.lanes.drop(task)
            raise parts.step.explain(task, index, e, minibatch.element) from e
        return Computed(
            task=task,
            index=index,
            is_last=minibatch.is_last,
            gradient=step.dense,
            state=step.state,
            counters=step.counters,
            loss=step.loss,
            records=step.rows,
            read_s=read - started,
            compute_s=time.perf_counter() - read,
        )

    def drop(self, task: int) -> None:
        """Give a training task up, in the middle or at its end; one that is not in hand is none."""
        if self._assembly is not None:
            self._assembly.lanes.drop(task)

    # -- evaluation

    def evaluate(self, task: int, records: TaskRange) -> tuple[int, MetricState]:
        """Evaluate one evaluation task on the loaded vectors.

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
        return self._ready.evaluator.evaluate(task, records, self._ready.vectors)

    def conclude(self, states: MetricState) -> dict[str, float]:
        """Return the metrics of a round from the sum of its tasks' states."""
        return self._ready.evaluator.conclude(states)

    def close(self) -> None:
        """Let go of files and threads; the trainer is of no use afterwards."""
        if self._assembly is not None:
            self._assembly.close()
        self._reader.close()

    @property
    def _ready(self) -> "Assembly":
        if self._assembly is None:
            raise LocalProtocolError("the model is not built yet")
        return self._assembly

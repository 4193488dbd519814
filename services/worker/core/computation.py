"""What the life of a worker asks of whatever computes: the engine, and what it gives.

The shell drives one engine, from one thread.  In a job it is the `KerasEngine`, with Keras; a test may take anything that
turns records and vectors into gradients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edlz.services.configuration.job_config import JobConfig
from edlz.services.predictions.table import PredictionTable
from edlz.services.protocol.concluded_rounds import CallbackNeeds, Decision, ShownRound
from edlz.services.protocol.layout import Layout
from edlz.services.protocol.messages import (
    ExportLease,
    ExportReport,
    ExportWish,
    Job,
    MetricState,
    OptimizerSpec,
    TableSpec,
)
from edlz.services.protocol.plan import Plan, TaskRange
from edlz.services.statistics.parts import TaskStatistics

__all__ = ["BatchCalls", "Built", "Computed", "Engine", "GroupedIds", "MakeEngine", "Predicted"]

Vector = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Built:
    """A model before training, the same in every process.

    Attributes
    ----------
    dense, state : ndarray, float32; counters : ndarray, int64
        Padded as the layout says, 64-byte aligned.
    tables : tuple of TableSpec
        Of the embedding tables, which are not in `dense`.
    export_wish : ExportWish, optional
        Of the model's callbacks().
    callbacks : CallbackNeeds or None
        What the model's callbacks need of the job, if anything.
    stops_on_nan : bool
        Whether they end it at a loss that is not finite.
    """

    layout: Layout
    optimizer: OptimizerSpec
    dense: Vector
    state: Vector
    counters: Integers
    tables: tuple[TableSpec, ...] = ()
    export_wish: ExportWish | None = None
    callbacks: CallbackNeeds | None = None
    stops_on_nan: bool = False


@dataclass(frozen=True, slots=True)
class GroupedIds:
    """The distinct ids of one table in a minibatch, grouped by the partition that owns them.

    Attributes
    ----------
    ids : ndarray, shape (m,), int64
    counts : ndarray, shape (partitions,), int64
        How many of them each partition owns; they lie one after another.
    """

    ids: Integers
    counts: Integers


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
    row_gradients : tuple of ndarray, shape (m, dim), float32
        For each table, the gradients of its rows in the order of `Engine.find_ids`.
    """

    task: int
    index: int
    is_last: bool
    gradient: Vector | None
    state: Vector | None
    counters: Integers | None
    loss: float | None
    records: int
    read_s: float
    compute_s: float
    row_gradients: tuple[Vector, ...] = ()


@dataclass(frozen=True, slots=True)
class Predicted:
    """The outputs of a task, or its statistics; `table` is None if nothing is to be written."""

    records: int
    table: PredictionTable | TaskStatistics | None


class BatchCalls(Protocol):
    """Callbacks that are called at each minibatch."""

    def on_batch_begin(self, version: int) -> None: ...

    def on_batch_end(self, version: int, loss: float) -> None: ...


class Engine(Protocol):
    """The model of one job, in this process.  What each method promises stands at the `KerasEngine`'s."""

    def build(self) -> Built: ...

    def check(self) -> object: ...

    def learning_rate(self, version: int) -> float: ...

    def table_rates(self, version: int, rate: float | None = None) -> tuple[float, ...]: ...

    def load(self, dense: Vector, state: Vector, counters: Integers) -> None: ...

    def begin(
        self,
        task: int,
        lane: int = 0,
        first: int = 0,
        end_at: int | None = None,
        records: TaskRange | None = None,
    ) -> None: ...

    def find_ids(self, task: int, index: int) -> tuple[GroupedIds, ...] | None: ...

    def compute(self, task: int, index: int, rows: Sequence[Vector] = ()) -> Computed: ...

    def drop(self, task: int) -> None: ...

    def evaluation_ids(self, task: int, records: TaskRange) -> tuple[GroupedIds, ...]: ...

    def evaluate(
        self, task: int, records: TaskRange, rows: Sequence[Vector] = ()
    ) -> tuple[int, MetricState]: ...

    def predict(
        self, task: int, records: TaskRange, rows: Sequence[Vector] = (), attempt: int = 0
    ) -> Predicted: ...

    def conclude(self, states: MetricState) -> dict[str, float]: ...

    def decide(self, shown: ShownRound, metrics: dict[str, float]) -> Decision: ...

    @property
    def batch_calls(self) -> BatchCalls | None: ...

    def export(self, job: Job, lease: ExportLease, on_progress: Callable[[], None]) -> ExportReport: ...

    def close(self) -> None: ...


MakeEngine = Callable[[JobConfig, Plan, int], Engine]
"""Makes the engine of a job with these settings, this plan and so many partitions; cheap, until it builds."""

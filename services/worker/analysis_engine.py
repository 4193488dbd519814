"""What a worker computes in an analysis: statistics of a task's records.  There is no model, and no TensorFlow."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import DataError
from edlz.services.inputs.analyzed_data import chosen_columns
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.example_values import ExampleError, example_values
from edlz.services.inputs.reading.records import Columns, Records
from edlz.services.protocol.concluded_rounds import Decision, ShownRound
from edlz.services.protocol.layout import Layout
from edlz.services.protocol.messages import ExportLease, ExportReport, Job, MetricState, OptimizerSpec
from edlz.services.protocol.plan import ColumnKind, Plan, TaskRange
from edlz.services.statistics.columns import ColumnState, Kind, make_state
from edlz.services.statistics.parts import TaskStatistics
from edlz.services.worker.core.computation import BatchCalls, Built, Computed, GroupedIds, Predicted
from edlz.services.worker.engine.user_code.user_code import TaskError

__all__ = ["AnalysisEngine"]

BLOCK_RECORDS = 1 << 14  # read at once
_KINDS: dict[ColumnKind, Kind] = {
    "bool": "int64",
    "int32": "int64",
    "int64": "int64",
    "float32": "float64",
    "float64": "float64",
    "string": "string",
}

Vector = npt.NDArray[np.float32]


class AnalysisEngine:
    """The statistics of one job's tasks; an `Engine` of a job that does nothing else.

    Parameters
    ----------
    config, plan : JobConfig, Plan
    partitions : int
        One, which is empty.
    """

    def __init__(self, config: JobConfig, plan: Plan, partitions: int = 1) -> None:
        self._plan, self._wanted = plan, chosen_columns(config.columns)
        self._source = RecordSource(plan.evaluation_source)

    @property
    def batch_calls(self) -> BatchCalls | None:
        return None

    def build(self) -> Built:
        """Return a model without parameters."""
        none, counters = np.zeros(0, np.float32), np.zeros(0, np.int64)
        return Built(Layout(), OptimizerSpec(name="SGD", settings={}), none, none, counters)

    def check(self) -> None:
        """There is nothing to be tried."""

    def load(self, dense: Vector, state: Vector, counters: npt.NDArray[np.int64]) -> None:
        """There is nothing to be loaded."""

    def predict(
        self, task: int, records: TaskRange, rows: Sequence[Vector] = (), attempt: int = 0
    ) -> Predicted:
        """Return the statistics of a task.

        Raises
        ------
        TaskError
            If its records cannot be read, or have no columns.
        """
        states: dict[str, ColumnState] = {}
        try:
            for first, block in self._blocks(records):
                if isinstance(block, Columns):
                    self._add_columns(states, block)
                else:
                    self._add_examples(states, block, records.name, first)
        except DataError as error:
            raise TaskError(task, 0, error.message, error.help) from error
        except Exception as error:  # of whatever reads the file
            text = f"{type(error).__name__}: {error}"
            raise TaskError(task, 0, text, traceback=traceback.format_exc()) from error
        return Predicted(records.count, TaskStatistics(records.count, states))

    def close(self) -> None:
        self._source.close()

    def _blocks(self, records: TaskRange) -> Iterator[tuple[int, Records]]:
        end = records.first + records.count
        for first in range(records.first, end, BLOCK_RECORDS):
            count = min(BLOCK_RECORDS, end - first)
            yield first, self._source.read(TaskRange(name=records.name, first=first, count=count))

    def _add_columns(self, states: dict[str, ColumnState], block: Columns) -> None:
        assert self._plan.evaluation_source is not None
        for column in self._plan.evaluation_source.columns:
            if column.name not in states:
                states[column.name] = make_state(_KINDS[column.kind])
            values = block.values[column.name]
            if column.kind in ("bool", "int32"):
                values = values.astype(np.int64)
            states[column.name].add(values)

    def _add_examples(
        self, states: dict[str, ColumnState], block: list[bytes], name: str, first: int
    ) -> None:
        try:
            found = example_values(block)
        except ExampleError as error:
            raise DataError(f"record {first + error.place} of {name} {error}") from error
        for feature, values in found.items():
            if self._wanted and feature not in self._wanted:
                continue
            state = states.setdefault(feature, make_state(values.kind))
            if state.kind != values.kind:
                raise DataError(
                    f'feature "{feature}" is {state.kind} in some records of {name}, else {values.kind}'
                )
            _add_ragged(state, values.array(), values.rows)

    # -- what a job without a model is never asked for

    def learning_rate(self, version: int) -> float:
        _never()

    def table_rates(self, version: int, rate: float | None = None) -> tuple[float, ...]:
        _never()

    def begin(
        self,
        task: int,
        lane: int = 0,
        first: int = 0,
        end_at: int | None = None,
        records: TaskRange | None = None,
    ) -> None:
        _never()

    def find_ids(self, task: int, index: int) -> tuple[GroupedIds, ...] | None:
        _never()

    def compute(self, task: int, index: int, rows: Sequence[Vector] = ()) -> Computed:
        _never()

    def drop(self, task: int) -> None:
        _never()

    def evaluation_ids(self, task: int, records: TaskRange) -> tuple[GroupedIds, ...]:
        _never()

    def evaluate(self, task: int, records: TaskRange, rows: Sequence[Vector] = ()) -> tuple[int, MetricState]:
        _never()

    def conclude(self, states: MetricState) -> dict[str, float]:
        _never()

    def decide(self, shown: ShownRound, metrics: dict[str, float]) -> Decision:
        _never()

    def export(self, job: Job, lease: ExportLease, on_progress: Callable[[], None]) -> ExportReport:
        _never()


def _add_ragged(state: ColumnState, values: npt.NDArray[Any], rows: int) -> None:
    """Add values of which a record may have several."""
    before = state.rows
    state.add(values)
    state.rows = before + rows


def _never() -> NoReturn:
    raise AssertionError("an analysis has no model")

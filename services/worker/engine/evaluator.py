"""Evaluation: one evaluation task at a time, and metrics from the sum of tasks' states."""

from collections.abc import Sequence
from typing import Any

from edlz.services.protocol.messages import MetricState
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.core.computation import GroupedIds
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.batch_structure import record_count
from edlz.services.worker.engine.feed.feed import Feed
from edlz.services.worker.engine.model.keras_model import BuiltModel
from edlz.services.worker.engine.model.metrics import MetricSet
from edlz.services.worker.engine.rows.row_inputs import Rows
from edlz.services.worker.engine.step import Forward, LoadedVectors
from edlz.services.worker.engine.whole_tasks import WholeTasks

__all__ = ["Evaluator"]


class Evaluator:
    """Evaluates a model with the user's metrics.

    Parameters
    ----------
    feed : Feed
        In evaluation mode.
    vectors : LoadedVectors
        Any: a first minibatch is tried on them, so that the metrics exist and are known to be sums.
    ranges : sequence of TaskRange
        The evaluation tasks of the job.
    partitions : int
    with_loss : bool
        Measure the loss too, whatever the metrics are.

    Raises
    ------
    ModelError
        If the user's code raises, or a metric cannot be added up over tasks.
    DataError
        If the feed leaves out every record.
    """

    def __init__(
        self,
        contract: ModelContract,
        built: BuiltModel,
        feed: Feed,
        vectors: LoadedVectors,
        ranges: Sequence[TaskRange],
        partitions: int = 1,
        *,
        with_loss: bool = False,
    ) -> None:
        self._tasks = WholeTasks(contract, built, feed, "validation", partitions)
        with contract.code.blaming(contract.metrics):
            self._metrics = MetricSet(contract, with_loss=with_loss)
        forward = Forward(contract, built, feed.spec, self._tasks.ids)
        element, inputs = self._tasks.first(ranges)
        labels, predictions = forward.first("validation", element, vectors, inputs)
        with contract.code.blaming(contract.metrics):
            self._metrics.prepare(labels, predictions)
        self._update = Forward(contract, built, feed.spec, self._tasks.ids, then=self._metrics.update)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return self._metrics.names

    def find_ids(self, task: int, records: TaskRange) -> tuple[GroupedIds, ...]:
        """Read a task's minibatches, and return the distinct ids of each table in all of them.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them.
        """
        return self._tasks.find_ids(task, records)

    def evaluate(
        self, task: int, records: TaskRange, vectors: LoadedVectors, rows: Sequence[Rows] = ()
    ) -> tuple[int, MetricState]:
        """Return how many records a task has and the state of the metrics over them.

        Parameters
        ----------
        rows : sequence of ndarray, shape (m, dim)
            Of each table, in the order of `find_ids`.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them.
        """
        self._metrics.reset()
        count = sum(
            self._add(task, index, element, vectors, inputs)
            for index, element, inputs in self._tasks.minibatches(task, records, rows)
        )
        return count, self._metrics.state()

    def conclude(self, states: MetricState) -> dict[str, float]:
        """Return the metrics of the sum of tasks' states."""
        return self._metrics.conclude(states)

    def close(self) -> None:
        self._tasks.close()

    def _add(
        self, task: int, index: int, element: Any, vectors: LoadedVectors, inputs: Sequence[Any] = ()
    ) -> int:
        """Add a minibatch to the metrics; return how many records it has."""
        self._update.of_task(task, index, element, vectors, inputs)
        return record_count(element)

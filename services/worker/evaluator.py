"""Evaluation: one evaluation task at a time, and metrics from the sum of tasks' states."""

from collections.abc import Sequence
from typing import Any

from edlz.services.messages import MetricState
from edlz.services.plan import TaskRange
from edlz.services.worker.elements import row_count
from edlz.services.worker.feed import Feed
from edlz.services.worker.keras_model import BuiltModel
from edlz.services.worker.lanes import Lanes
from edlz.services.worker.metrics import MetricSet
from edlz.services.worker.model_module import ModelContract
from edlz.services.worker.step import Forward, LoadedVectors
from edlz.services.worker.user_code import TaskError, UserCodeError

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
    ) -> None:
        self._contract = contract
        self._lanes = Lanes(feed, contract.code, contract.feed)
        self._metrics = MetricSet(contract)
        forward = Forward(contract, built, feed.spec)
        self._metrics.prepare(*forward(self._first_element(ranges), vectors))
        self._update = Forward(contract, built, feed.spec, then=self._metrics.update)

    def evaluate(self, task: int, records: TaskRange, vectors: LoadedVectors) -> tuple[int, MetricState]:
        """Return the rows of a task and the state of the metrics over them.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them.
        """
        rows, index = 0, 0
        self._metrics.reset()
        self._lanes.begin(task, records)
        try:
            while True:
                minibatch = self._lanes.minibatch(task, index)
                if minibatch.element is not None:
                    self._add(task, index, minibatch.element, vectors)
                    rows += row_count(minibatch.element)
                if minibatch.is_last:
                    return rows, self._metrics.state()
                index += 1
        finally:
            self._lanes.drop(task)

    def conclude(self, states: MetricState) -> dict[str, float]:
        """Return the metrics of the sum of tasks' states."""
        return self._metrics.conclude(states)

    def close(self) -> None:
        self._lanes.close()

    def _add(self, task: int, index: int, element: Any, vectors: LoadedVectors) -> None:
        try:
            self._update(element, vectors)
        except Exception as e:
            raise self._contract.code.task_error(task, index, e) from e

    def _first_element(self, ranges: Sequence[TaskRange]) -> Any:
        try:
            return self._lanes.first_element(enumerate(ranges))
        except TaskError as e:
            message = f"the first validation records: {e.error}"
            raise UserCodeError(message, where=e.where, traceback=e.traceback) from e

"""Evaluation: one evaluation task at a time, and metrics from the sum of tasks' states."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edlz.services.messages import MetricState
from edlz.services.plan import TaskRange
from edlz.services.worker.elements import row_count
from edlz.services.worker.feed import Feed
from edlz.services.worker.ids_function import IdsFunction
from edlz.services.worker.keras_model import BuiltModel
from edlz.services.worker.lanes import Lanes
from edlz.services.worker.metrics import MetricSet
from edlz.services.worker.model_module import ModelContract
from edlz.services.worker.row_inputs import Located, RowBuffers, Rows
from edlz.services.worker.step import Forward, LoadedVectors
from edlz.services.worker.tables import GroupedIds, group_tables
from edlz.services.worker.user_code import TaskError, UserCodeError

__all__ = ["Evaluator"]


@dataclass(frozen=True, slots=True)
class _Read:
    """A task whose ids have been asked for: its minibatches stay in memory until it is evaluated."""

    task: int
    elements: list[Any]
    located: list[Located]
    groups: tuple[GroupedIds, ...]


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
    ) -> None:
        self._contract, self._tables, self._partitions = contract, built.tables, partitions
        self._lanes = Lanes(feed, contract.code, contract.feed)
        self._metrics = MetricSet(contract)
        self._ids = IdsFunction(contract, built, feed.spec, is_training=False) if built.tables else None
        self._read: _Read | None = None
        self._buffers = RowBuffers()
        forward = Forward(contract, built, feed.spec, self._ids)
        self._metrics.prepare(*self._first_predictions(forward, ranges, vectors))
        self._update = Forward(contract, built, feed.spec, self._ids, then=self._metrics.update)

    def find_ids(self, task: int, records: TaskRange) -> tuple[GroupedIds, ...]:
        """Read a task's minibatches, and return the distinct ids of each table in all of them.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them.
        """
        assert self._ids is not None
        self._read = None
        elements, ids, sizes = [], [], []
        for index, element in self._minibatches(task, records):
            try:
                of_tables, of_lookups = self._ids(element)
            except Exception as e:
                raise self._contract.code.task_error(task, index, e) from e
            elements.append(element)
            ids.append(of_tables)
            sizes.append(of_lookups)
        try:
            groups, located = self._locate(ids, sizes)
        except ValueError as e:
            raise self._contract.code.task_error(task, 0, e) from e
        self._read = _Read(task, elements, located, groups)
        return groups

    def evaluate(
        self, task: int, records: TaskRange, vectors: LoadedVectors, rows: Sequence[Rows] = ()
    ) -> tuple[int, MetricState]:
        """Return the rows of a task and the state of the metrics over them.

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
        if self._ids is None:
            count = sum(
                self._add(task, index, element, vectors)
                for index, element in self._minibatches(task, records)
            )
            return count, self._metrics.state()
        if self._read is None or self._read.task != task:
            self.find_ids(task, records)
        read, self._read = self._read, None
        assert read is not None
        count = sum(
            self._add(task, index, element, vectors, located.inputs(rows, self._buffers))
            for index, (element, located) in enumerate(zip(read.elements, read.located, strict=True))
        )
        return count, self._metrics.state()

    def conclude(self, states: MetricState) -> dict[str, float]:
        """Return the metrics of the sum of tasks' states."""
        return self._metrics.conclude(states)

    def close(self) -> None:
        self._lanes.close()

    def _minibatches(self, task: int, records: TaskRange) -> Iterator[tuple[int, Any]]:
        self._lanes.begin(task, records)
        try:
            is_last, index = False, 0
            while not is_last:
                minibatch = self._lanes.minibatch(task, index)
                if minibatch.element is not None:
                    yield index, minibatch.element
                is_last, index = minibatch.is_last, index + 1
        finally:
            self._lanes.drop(task)

    def _locate(
        self, ids: Sequence[Sequence[Any]], sizes: Sequence[Any]
    ) -> tuple[tuple[GroupedIds, ...], list[Located]]:
        """Group the ids of several minibatches together, and find each minibatch's in the groups."""
        none = np.empty(0, np.int64)
        joined = [np.concatenate([none, *of_table]) for of_table in zip(*ids, strict=True)]
        joined = joined or [none for _ in self._tables]
        groups, places = group_tables(self._tables, joined, self._partitions)
        counts = [len(group.ids) for group in groups]
        located, ends = [], [0] * len(self._tables)
        for of_minibatch, of_lookups in zip(ids, sizes, strict=True):
            starts, ends = ends, [end + part.size for end, part in zip(ends, of_minibatch, strict=True)]
            parts = [of_table[a:b] for of_table, a, b in zip(places, starts, ends, strict=True)]
            located.append(Located(self._tables, parts, counts, of_lookups))
        return groups, located

    def _add(
        self, task: int, index: int, element: Any, vectors: LoadedVectors, rows: Sequence[Any] = ()
    ) -> int:
        """Add a minibatch to the metrics; return its number of rows."""
        try:
            self._update(element, vectors, rows)
        except Exception as e:
            raise self._contract.code.task_error(task, index, e) from e
        return row_count(element)

    def _first_predictions(
        self, forward: Forward, ranges: Sequence[TaskRange], vectors: LoadedVectors
    ) -> Any:
        """Return labels and predictions of the first minibatch, on rows of zeros."""
        element = self._first_element(ranges)
        if self._ids is None:
            return forward(element, vectors)
        ids, sizes = self._ids(element)
        groups, (located,) = self._locate([ids], [sizes])
        rows = [
            np.zeros((len(g.ids), layer.output_dim), np.float32)
            for g, layer in zip(groups, self._tables, strict=True)
        ]
        return forward(element, vectors, located.inputs(rows, self._buffers))

    def _first_element(self, ranges: Sequence[TaskRange]) -> Any:
        try:
            return self._lanes.first_element(enumerate(ranges))
        except TaskError as e:
            message = f"the first validation records: {e.error}"
            raise UserCodeError(message, where=e.where, traceback=e.traceback) from e

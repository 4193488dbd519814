"""Tasks that are worked on as a whole, in inference mode: their minibatches, and the rows of tables for each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.core.computation import GroupedIds
from edlz.services.worker.engine.contract.model_module import ModelContract
from edlz.services.worker.engine.feed.feed import Feed
from edlz.services.worker.engine.feed.minibatch_streams import Lanes
from edlz.services.worker.engine.model.keras_model import BuiltModel
from edlz.services.worker.engine.model.tables import group_tables
from edlz.services.worker.engine.rows.ids_function import IdsFunction
from edlz.services.worker.engine.rows.row_inputs import Located, RowBuffers, Rows
from edlz.services.worker.engine.user_code.advice import advice_for
from edlz.services.worker.engine.user_code.user_code import TaskError, UserCodeError

__all__ = ["WholeTasks"]


@dataclass(frozen=True, slots=True)
class _Read:
    """A task whose ids have been asked for: its minibatches stay in memory until it is worked on."""

    task: int
    elements: list[Any]
    located: list[Located]
    groups: tuple[GroupedIds, ...]


class WholeTasks:
    """The minibatches of one task after another.

    Parameters
    ----------
    feed : Feed
        In evaluation or prediction mode.
    what : str
        What the records are called in messages.

    Attributes
    ----------
    ids : IdsFunction or None
        The lookups that the model makes; None for a model without tables.
    """

    def __init__(
        self, contract: ModelContract, built: BuiltModel, feed: Feed, what: str, partitions: int = 1
    ) -> None:
        self._contract, self._tables, self._partitions = contract, built.tables, partitions
        self._what = what
        self._lanes = Lanes(feed, contract.code, contract.feed)
        self.ids = IdsFunction(contract, built, feed.spec, is_training=False) if built.tables else None
        self._read: _Read | None = None
        self._buffers = RowBuffers()

    def find_ids(self, task: int, records: TaskRange) -> tuple[GroupedIds, ...]:
        """Read a task's minibatches, and return the distinct ids of each table in all of them.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them.
        """
        assert self.ids is not None
        self._read = None
        elements, ids, sizes = [], [], []
        for index, element in self._minibatches(task, records):
            try:
                of_tables, of_lookups = self.ids(element)
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

    def minibatches(
        self, task: int, records: TaskRange, rows: Sequence[Rows] = ()
    ) -> Iterator[tuple[int, Any, Sequence[Any]]]:
        """Yield each minibatch of a task: its index, its element, and its inputs for the rows of tables.

        Parameters
        ----------
        rows : sequence of ndarray, shape (m, dim)
            Of each table, in the order of `find_ids`.

        Raises
        ------
        TaskError
            If its records cannot be read, or the user's code raises on them.
        """
        if self.ids is None:
            for index, element in self._minibatches(task, records):
                yield index, element, ()
            return
        if self._read is None or self._read.task != task:
            self.find_ids(task, records)
        read, self._read = self._read, None
        assert read is not None
        for index, (element, located) in enumerate(zip(read.elements, read.located, strict=True)):
            yield index, element, located.inputs(rows, self._buffers)

    def first(self, ranges: Sequence[TaskRange]) -> tuple[Any, Sequence[Any]]:
        """Return the element of the first minibatch of these tasks, and inputs that are rows of zeros.

        Raises
        ------
        ModelError
            If the user's code raises.
        DataError
            If the feed leaves out every record.
        """
        try:
            element = self._lanes.first_element(enumerate(ranges))
        except TaskError as e:
            raise e.as_mistake(f"the first {self._what} records", self._contract.model_place) from e
        if self.ids is None:
            return element, ()
        ids, sizes = self.ids(element)
        try:
            groups, (located,) = self._locate([ids], [sizes])
        except ValueError as e:
            place = self._contract.model_place
            raise UserCodeError(
                f"the first {self._what} records: {e}", advice_for(str(e)), where=place
            ) from e
        rows = [
            np.zeros((len(g.ids), layer.output_dim), np.float32)
            for g, layer in zip(groups, self._tables, strict=True)
        ]
        return element, located.inputs(rows, self._buffers)

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

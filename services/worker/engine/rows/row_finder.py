"""The rows that training minibatches look up, found ahead of their step and kept until it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edlz.services.errors import EdlzError
from edlz.services.worker.core.computation import GroupedIds
from edlz.services.worker.engine.feed.minibatch_streams import Lanes, Minibatch
from edlz.services.worker.engine.model.tables import group_tables
from edlz.services.worker.engine.rows.ids_function import IdsFunction
from edlz.services.worker.engine.rows.row_inputs import Located, RowBuffers, Rows
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import UserCode

__all__ = ["Found", "RowFinder"]


@dataclass(frozen=True, slots=True)
class Found:
    """What a minibatch looks up: the distinct ids of each table, and where in them each of its ids is."""

    buffers: RowBuffers
    groups: tuple[GroupedIds, ...]
    located: Located

    def inputs(self, rows: Sequence[Rows]) -> tuple[Any, ...]:
        """Return what the step takes besides the vectors, with these rows of the tables.

        Raises
        ------
        LocalProtocolError
            If they are not the rows of the groups.
        """
        return self.located.inputs(rows, self.buffers)

    def sum(self, gradients: Sequence[Any]) -> tuple[Rows, ...]:
        """Return the gradients of the groups' rows from those of each id."""
        return self.located.sum(gradients)


class RowFinder:
    """Finds the rows of training minibatches.

    Parameters
    ----------
    function : IdsFunction or None
        None for a model without tables, which finds nothing.
    """

    def __init__(
        self,
        code: UserCode,
        layers: tuple[Any, ...],
        function: IdsFunction | None,
        lanes: Lanes,
        partitions: int,
    ) -> None:
        self._code, self._layers, self._function = code, layers, function
        self._lanes, self._partitions = lanes, partitions
        self._buffers = RowBuffers()
        self._found: dict[tuple[int, int], Found] = {}  # of minibatches that are not computed yet

    def find(self, task: int, index: int) -> Found | None:
        """Return what a minibatch looks up, or None if the task ends before it.

        Raises
        ------
        TaskError
            If the task cannot be read, or the user's code raises on it; it is out of hand then.
        """
        known = self._found.get((task, index))
        if known is not None:
            return known
        minibatch = self._lanes.ahead(task, index)
        return None if minibatch is None else self._look_up(minibatch)

    def take(self, minibatch: Minibatch) -> Found | None:
        """Return what a minibatch looks up, and forget those before it; None for a model without tables."""
        if self._function is None:
            return None
        task, index = minibatch.task, minibatch.index
        self._found = {key: found for key, found in self._found.items() if key[0] != task or key[1] >= index}
        return self._found.get((task, index)) or self._look_up(minibatch)

    def drop(self, task: int) -> None:
        """Forget a task."""
        self._found = {key: found for key, found in self._found.items() if key[0] != task}

    def _look_up(self, minibatch: Minibatch) -> Found:
        assert self._function is not None
        task, index = minibatch.task, minibatch.index
        if minibatch.element is None:
            ids, sizes = [np.empty(0, np.int64)] * len(self._layers), tf.zeros([0], tf.int32)
        else:
            try:
                ids, sizes = self._function(minibatch.element)
            except EdlzError:
                raise
            except Exception as e:
                raise self._failed(task, index, e) from e
        try:
            groups, places = group_tables(self._layers, ids, self._partitions)
        except ValueError as e:
            raise self._failed(task, index, e) from e
        counts = [len(group.ids) for group in groups]
        located = Located(self._layers, places, counts, sizes)
        found = self._found[task, index] = Found(self._buffers, groups, located)
        return found

    def _failed(self, task: int, index: int, error: Exception) -> EdlzError:
        self._lanes.drop(task)
        self.drop(task)
        return self._code.task_error(task, index, error)

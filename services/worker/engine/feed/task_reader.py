"""Reading the records of tasks, in the order in which the plan has them."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.inputs.data import Opener, RecordSource
from edlz.services.inputs.reading.records import Records
from edlz.services.protocol.plan import Plan, TaskRange

__all__ = ["Assignment", "TaskReader"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """One run through a task's records; minibatches before `first` are left out.  `number` is never reused."""

    number: int
    task: int
    records: TaskRange
    first: int = 0


class TaskReader:
    """Reads records; any thread may call it.

    Parameters
    ----------
    plan : Plan
        Which has the order of each task.
    source : RecordSource, optional
        Where they are.
    """

    def __init__(self, plan: Plan, source: RecordSource | None = None) -> None:
        # A plan of its own: a plan keeps orders that it has worked out, and has no lock.
        self._plan = msgspec.structs.replace(plan)
        self._lock = threading.Lock()  # guards the plan
        self._source = source or RecordSource(plan.source, plan.evaluation_source)

    def use(self, opener: Opener, names: Iterable[str], *, uses_for_others: bool = False) -> None:
        """Have shards of these names opened by a reader of the model's own; and all that the plan does not know."""
        self._source.use(opener, names, uses_for_others=uses_for_others)

    def read_training(self, assignment: Assignment) -> Records:
        """Return the records of a training task in the task's order.

        Raises
        ------
        DataError
            If they cannot be read.
        """
        return self._source.read(assignment.records, self._order(assignment))

    def number_in_training(self, assignment: Assignment, place: int) -> int:
        """Return the number in its file of the record at this place in the task's order."""
        return assignment.records.first + int(self._order(assignment)[place])

    def read_evaluation(self, assignment: Assignment) -> Records:
        """Return the records of an evaluation task in the order of the file."""
        return self._source.read(assignment.records)

    def number_in_evaluation(self, assignment: Assignment, place: int) -> int:
        return assignment.records.first + place

    def sample(self, *, is_training: bool = True) -> Records:
        """Return the first records of the data to train on, or of the other, if there is such; a minibatch at most."""
        both = self._plan.ranges, self._plan.evaluation_ranges
        first = next(ranges[0] for ranges in (both if is_training else both[::-1]) if ranges)
        count = min(first.count, self._plan.minibatch_size)
        return self._source.read(msgspec.structs.replace(first, count=count))

    def close(self) -> None:
        self._source.close()

    def _order(self, assignment: Assignment) -> npt.NDArray[np.int64]:
        with self._lock:
            return self._plan.record_order(assignment.task, assignment.records.count)

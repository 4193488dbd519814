"""Reading the records of tasks, in the order in which the plan has them."""

import threading
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.inputs.data import RecordSource
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
    """Reads records; any thread may call it."""

    def __init__(self, plan: Plan, source: RecordSource | None = None) -> None:
        # A plan of its own: a plan keeps orders that it has worked out, and has no lock.
        self._plan = msgspec.structs.replace(plan)
        self._lock = threading.Lock()  # guards the plan
        self._source = source or RecordSource()

    def read_training(self, assignment: Assignment) -> list[bytes]:
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

    def read_evaluation(self, assignment: Assignment) -> list[bytes]:
        """Return the records of an evaluation task in the order of the file."""
        return self._source.read(assignment.records)

    def number_in_evaluation(self, assignment: Assignment, place: int) -> int:
        return assignment.records.first + place

    def sample(self) -> list[bytes]:
        """Return the first records of the data, a minibatch at most."""
        first = (self._plan.ranges or self._plan.evaluation_ranges)[0]
        count = min(first.count, self._plan.minibatch_size)
        return self._source.read(msgspec.structs.replace(first, count=count))

    def close(self) -> None:
        self._source.close()

    def _order(self, assignment: Assignment) -> npt.NDArray[np.int64]:
        with self._lock:
            return self._plan.record_order(assignment.task)

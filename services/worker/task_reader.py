"""Reading the records of tasks, in the order in which the plan has them."""

import threading
from dataclasses import dataclass

import msgspec

from edlz.services.data import RecordSource
from edlz.services.plan import Plan, TaskRange

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
        with self._lock:
            order = self._plan.record_order(assignment.task)
        return self._source.read(assignment.records, order)

    def read_evaluation(self, assignment: Assignment) -> list[bytes]:
        """Return the records of an evaluation task in the order of the file."""
        return self._source.read(assignment.records)

    def sample(self) -> list[bytes]:
        """Return the first records of the data, a minibatch at most."""
        first = self._plan.ranges[0]
        count = min(first.count, self._plan.minibatch_size)
        return self._source.read(msgspec.structs.replace(first, count=count))

    def close(self) -> None:
        self._source.close()

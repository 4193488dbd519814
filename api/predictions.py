"""What a model module builds on to take predictions itself."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

__all__ = ["BasePredictionOutputsProcessor", "PredictionContext"]


@dataclass(frozen=True, slots=True)
class PredictionContext:
    """Which minibatch predictions are of.

    A task that is done again, after a loss, gives the same minibatches with the same (task, index) and the same
    values.  A sink that replaces what it has of them holds each of them once.

    Attributes
    ----------
    task : int
        Number of the task, in the order of the data.
    index : int or None
        Number of the minibatch in its task; None in `commit`.
    shard : str
        File of its records.
    first_record : int
        Number in that file of its first record, for a feed that keeps all records in their order.
    attempt : int
        How often the task was given to a worker before, as far as the present master knows.
    worker_id : number of this worker
    """

    task: int
    index: int | None
    shard: str
    first_record: int
    attempt: int
    worker_id: int


class BasePredictionOutputsProcessor(ABC):
    """Base of a model module's `PredictionOutputsProcessor`, of which each worker makes one.

    `process` may have a third parameter, `context`.  It is called when all minibatches of a task are computed, in
    their order, and then `commit`.
    """

    @abstractmethod
    def process(self, predictions: Any, worker_id: int) -> None:
        """Take the outputs of one minibatch: an eager tensor, or a structure of them as the model gives it."""

    def commit(self, context: PredictionContext) -> None:  # noqa: B027
        """All minibatches of a task have been taken."""

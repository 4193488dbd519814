"""The user's own taker of predictions: made once in each worker, called in the order of minibatches."""

from functools import partial
from typing import Any

from edlz.api.predictions import PredictionContext
from edlz.services.errors import ModelError
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.engine.contract.signatures import positional_count
from edlz.services.worker.engine.user_code.user_code import UserCode

__all__ = ["OutputsProcessor"]


class OutputsProcessor:
    """An instance of the user's `PredictionOutputsProcessor`.

    Parameters
    ----------
    kind : class
        With `process(predictions, worker_id)`, or a third parameter for the context; `commit(context)` if it likes.

    Raises
    ------
    ModelError
        If it cannot be made, or lacks `process`.
    """

    def __init__(self, kind: Any, code: UserCode, worker_id: int) -> None:
        name = getattr(kind, "__name__", str(kind))
        if not isinstance(kind, type) or not callable(getattr(kind, "process", None)):
            raise ModelError(
                f"{name} is no class with a method process(predictions, worker_id)",
                "derive it from edlz.api.BasePredictionOutputsProcessor",
            )
        with code.running(f"{name}()"):
            self._own: Any = kind()
        self._code, self._worker_id = code, worker_id
        self._takes_context = positional_count(self._own.process) >= 3

    def take(
        self, task: int, records: TaskRange, attempt: int, minibatches: list[tuple[int, int, Any]]
    ) -> None:
        """Hand over a whole task.

        Parameters
        ----------
        minibatches : list of (index, rows before it in the task, outputs)

        Raises
        ------
        TaskError
            If the user's code raises.
        """
        index, process, commit = 0, self._own.process, getattr(self._own, "commit", None)
        about = partial(
            PredictionContext, task=task, shard=records.name, attempt=attempt, worker_id=self._worker_id
        )
        try:
            for index, before, outputs in minibatches:
                context = about(index=index, first_record=records.first + before)
                process(outputs, self._worker_id, *([context] if self._takes_context else []))
            if commit is not None:
                commit(about(index=None, first_record=records.first))
        except Exception as e:
            raise self._code.task_error(task, index, e, process) from e

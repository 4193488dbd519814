"""The losses of one worker that are NaN or infinite: how many, the first and the newest, and whether one ends the job."""

import math
from typing import TypedDict, TypeGuard

from edlz.services.protocol.messages import FailedTask, NonFiniteLoss

__all__ = ["NonFiniteLosses", "is_nonfinite"]


class LossesTold(TypedDict):
    """Fields of a `WorkerStatus`."""

    nonfinite_losses: int
    nonfinite_loss: NonFiniteLoss | None
    first_nonfinite_loss: NonFiniteLoss | None


class NonFiniteLosses:
    """What a worker tells of them.

    Attributes
    ----------
    count : int
    first, newest : NonFiniteLoss or None
    ends_job : bool
        Whether the job is to end at such a loss; known when the model is built.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: NonFiniteLoss | None = None
        self.newest: NonFiniteLoss | None = None
        self.ends_job = False

    @property
    def told(self) -> LossesTold:
        """What the master is told of them."""
        return {
            "nonfinite_losses": self.count,
            "nonfinite_loss": self.newest,
            "first_nonfinite_loss": self.first,
        }

    def note(self, task: int, index: int, attempt: int, loss: float) -> FailedTask | None:
        """Count such a loss; return the failure that ends the job there, if it does."""
        self.count += 1
        self.newest = NonFiniteLoss(task=task, index=index, loss=loss)
        self.first = self.first or self.newest
        if not self.ends_job:
            return None
        return FailedTask(
            kind="training",
            task=task,
            index=index,
            error=f"the loss is {loss}",
            where="",
            traceback="",
            attempt=attempt,
            ends_job=True,
        )


def is_nonfinite(loss: float | None) -> TypeGuard[float]:
    """Whether this is a loss, and NaN or infinite."""
    return loss is not None and not math.isfinite(loss)

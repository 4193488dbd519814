"""Callbacks that a model module's `callbacks()` may return."""

from collections.abc import Callable
from typing import Any

import keras

__all__ = ["LearningRateScheduler"]


class LearningRateScheduler(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate of each update by the number of updates before it.

    `keras.callbacks.LearningRateScheduler` does so by epochs; jobs take either.

    Parameters
    ----------
    schedule : callable
        model version (int, the updates so far) -> learning rate.  It is asked for any version, in any order
        and in several processes, so it must be a function of the version alone.
    """

    def __init__(self, schedule: Callable[[int], float]) -> None:
        super().__init__()
        self.schedule = schedule

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Do the same under `keras.Model.fit`; in a job the worker asks the schedule itself."""
        optimizer = self.model.optimizer
        optimizer.learning_rate = float(self.schedule(int(optimizer.iterations)))

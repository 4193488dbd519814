"""Callbacks that a model module's `callbacks()` may return."""

import os
from collections.abc import Callable
from typing import Any

import keras

__all__ = ["LearningRateScheduler", "MaxStepsStopping", "SavedModelExporter"]


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


class MaxStepsStopping(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the job after so many minibatches, over all workers; `--max_step=N` does the same.

    Parameters
    ----------
    max_steps : int
        The first ones in the order of the plan.
    """

    def __init__(self, max_steps: int) -> None:
        super().__init__()
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps} is below 1")
        self.max_steps = int(max_steps)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Do the same under `keras.Model.fit`; in a job its plan is cut."""
        if int(self.model.optimizer.iterations) >= self.max_steps:
            self.model.stop_training = True


class SavedModelExporter(keras.callbacks.Callback):  # type: ignore[misc]
    """Exports the finished model at the end of the job, as `--output` does; that flag wins where both are given.

    Parameters
    ----------
    output : str or path, optional
        A folder, in which the export gets the next number, or a file `….keras`.  Without it the model comes out only
        if the job has `--output`.
    """

    def __init__(self, output: str | os.PathLike[str] = "") -> None:
        super().__init__()
        self.output = os.fspath(output)

    def on_train_end(self, logs: Any = None) -> None:
        """Do much the same under `keras.Model.fit`; in a job one worker exports what the partitions have sealed."""
        if self.output.endswith(".keras"):
            self.model.save(self.output)
        elif self.output:
            names = os.listdir(self.output) if os.path.isdir(self.output) else []
            taken = [int(name) for name in names if name.isdigit()]
            self.model.export(os.path.join(self.output, str(max(taken, default=0) + 1)), verbose=False)

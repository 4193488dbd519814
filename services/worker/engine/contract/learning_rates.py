"""The learning rate of each update, from whatever form the user's module gives it.

An optimizer's number or schedule, a schedule by model version, or Keras' scheduler by epochs: in the end each
is a function of the version (updates so far) alone, so any worker can say the rate of any push.
"""

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from edlz.api.callbacks import LearningRateScheduler
from edlz.services.errors import ModelError
from edlz.services.protocol.plan import Plan
from edlz.services.worker.engine.tensorflow.backend import keras
from edlz.services.worker.engine.user_code.user_code import UserCode

__all__ = ["SCHEDULERS", "Epochs", "LearningRate", "constant_rate", "scheduled_rate"]

Rate = Callable[[int], float]

_BY_EPOCH = keras.callbacks.LearningRateScheduler
SCHEDULERS = (LearningRateScheduler, _BY_EPOCH)
"""The callbacks that set learning rates."""


class LearningRate:
    """The learning rate by model version.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
    scheduled : callable, optional
        version -> rate, in place of the optimizer's own.
    """

    def __init__(self, optimizer: Any, scheduled: Rate | None = None) -> None:
        self._evaluate = scheduled or _own_rate(optimizer)
        self._rate = lru_cache(maxsize=256)(self._rounded)
        # A plain number is read once: reading a variable is an operation.
        is_constant = scheduled is None and not callable(optimizer._learning_rate)
        self._constant = self._rounded(0) if is_constant else None

    @property
    def constant(self) -> float | None:
        """The rate, if it is the same at every version."""
        return self._constant

    def at(self, version: int) -> float:
        """Return the rate of the step that makes version + 1, a float32 value.

        Parameters
        ----------
        version : int
            Updates applied so far.
        """
        return self._rate(version) if self._constant is None else self._constant

    def _rounded(self, version: int) -> float:
        return float(np.float32(self._evaluate(version)))


class Epochs:
    """Which epoch an update belongs to, for a feed that keeps every record."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ends: list[int] = []  # the version that each epoch leads to

    def at(self, version: int) -> int:
        """Return the epoch, from 0, of the step that makes version + 1; the last one for all later ones."""
        plan, ends = self._plan, self._ends
        if plan.grows:
            return 0
        while (plan.is_endless or len(ends) < plan.epochs) and (not ends or ends[-1] <= version):
            ends.append((ends[-1] if ends else 0) + self._steps(len(ends)))
        epoch = bisect_right(ends, version)
        return epoch if plan.is_endless else min(epoch, plan.epochs - 1)

    def _steps(self, epoch: int) -> int:
        plan = self._plan
        if not plan.is_sync:
            return plan.minibatches_per_epoch
        first, end = epoch * plan.tasks_per_epoch, (epoch + 1) * plan.tasks_per_epoch
        sizes = [-(-plan.task_records(task) // plan.minibatch_size) for task in range(first, end)]
        return sum(max(sizes[i : i + plan.slots]) for i in range(0, len(sizes), plan.slots))


def constant_rate(rate: float) -> Rate:
    """Return the schedule that is always the same."""
    return lambda version: rate


def scheduled_rate(callbacks: Sequence[Any], optimizer: Any, plan: Plan, code: UserCode) -> Rate | None:
    """Return the schedule by version that the last scheduler among the callbacks stands for, if there is one.

    Raises
    ------
    ModelError
        If the optimizer has a schedule of its own.
    """
    schedulers = [callback for callback in callbacks if isinstance(callback, SCHEDULERS)]
    if not schedulers:
        return None
    if isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        raise ModelError(
            "callbacks() schedules the learning rate, and so does the optimizer",
            "keep one of them: give the optimizer a number",
        )
    schedule = schedulers[-1].schedule
    if isinstance(schedulers[-1], _BY_EPOCH):
        return _by_epoch(schedule, _own_rate(optimizer)(0), Epochs(plan), code)

    def by_version(version: int) -> float:
        with code.running("the learning rate's schedule", schedule):
            return float(schedule(version))

    return by_version


def _own_rate(optimizer: Any) -> Rate:
    rate = optimizer._learning_rate
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return lambda version: float(rate(version))
    if callable(rate):
        return lambda version: float(rate())
    return constant_rate(float(rate))


def _by_epoch(schedule: Any, initial: float, epochs: Epochs, code: UserCode) -> Rate:
    """Keras may give the schedule the rate of the epoch before: so epochs are worked out in their order."""
    known: list[float] = []

    def rate(version: int) -> float:
        epoch = epochs.at(version)
        for number in itertools.count(len(known)):
            if number > epoch:
                return known[epoch]
            with code.running("the learning rate's schedule", schedule):
                try:
                    known.append(float(schedule(number, known[-1] if known else initial)))
                except TypeError:  # as Keras does, for a schedule of the epoch alone
                    known.append(float(schedule(number)))
        raise AssertionError("the count of epochs has no end")

    return rate

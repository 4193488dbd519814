"""The user's optimizer: the spellings of it that files have, and what partitions need to know of it.

A partition applies the updates, so of the Keras object three things are left: the name and settings that
the compiled optimizer takes, and the learning rate of a version.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from edlz.core_ext.optimizers import make_optimizer
from edlz.services.errors import ModelError
from edlz.services.messages import OptimizerSpec
from edlz.services.worker.backend import keras

__all__ = ["ModelOptimizer", "accept_older_spellings"]

_SETTINGS = {"SGD": ("momentum", "nesterov"), "Adam": ("beta_1", "beta_2", "epsilon")}

# Options of Keras' optimizers that partitions do not have yet, with the values that mean "off".
_OPTIONS_OFF = {
    "weight_decay": (None, 0, False),
    "clipnorm": (None,),
    "clipvalue": (None,),
    "global_clipnorm": (None,),
    "use_ema": (False, None),
    "loss_scale_factor": (None, 1),
    "gradient_accumulation_steps": (None, 1),
    "amsgrad": (False, None),
}


class ModelOptimizer:
    """An optimizer of Keras, read.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer

    Attributes
    ----------
    spec : OptimizerSpec

    Raises
    ------
    ModelError
        If partitions have no such optimizer, or not one of its options.
    """

    def __init__(self, optimizer: Any) -> None:
        self.spec = _read(optimizer)
        self._optimizer = optimizer
        self._rate = lru_cache(maxsize=256)(self._evaluate)
        # A plain number is read once: reading a variable is an operation.
        self._constant = None if callable(optimizer._learning_rate) else self._evaluate(0)

    def learning_rate(self, version: int) -> float:
        """Return the learning rate of the step that makes version + 1, a float32 value.

        Parameters
        ----------
        version : int
            Updates applied so far.
        """
        return self._rate(version) if self._constant is None else self._constant

    def _evaluate(self, version: int) -> float:
        rate = self._optimizer._learning_rate
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(version)
        elif callable(rate):
            rate = rate()
        return float(np.float32(float(rate)))


def accept_older_spellings() -> None:
    """Let Keras' optimizers take `lr=`, and integer learning rates, which older files pass.

    Changes the classes of `keras.optimizers` for this process, once.
    """
    optimizers = keras.optimizers
    base = optimizers.Optimizer
    if isinstance(getattr(base, "lr", None), property):
        return
    classes = {c for c in vars(optimizers).values() if isinstance(c, type) and issubclass(c, base)}
    for cls in classes - {base}:
        _wrap(cls)
    # Without this `optimizer.lr = 0.5` would succeed and change nothing.
    base.lr = property(
        lambda self: self.learning_rate, lambda self, rate: setattr(self, "learning_rate", rate)
    )


def _wrap(cls: Any) -> None:
    init = cls.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if "lr" in kwargs:
            kwargs["learning_rate"] = kwargs.pop("lr")
        if "learning_rate" in kwargs:
            kwargs["learning_rate"] = _as_float(kwargs["learning_rate"])
        elif args:
            args = (_as_float(args[0]), *args[1:])
        init(self, *args, **kwargs)

    __init__.__wrapped__ = init  # type: ignore[attr-defined]  # inspect.signature shows the real one
    cls.__init__ = __init__


def _as_float(rate: Any) -> Any:
    """Keras wants a float and nothing near it."""
    is_number = isinstance(rate, int | np.number) and not isinstance(rate, bool)
    return float(rate) if is_number else rate


def _read(optimizer: Any) -> OptimizerSpec:
    supported = ", ".join(_SETTINGS)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ModelError(
            f"optimizer() returned {type(optimizer).__name__}, which is no Keras optimizer",
            f"return one of keras.optimizers: {supported}",
        )
    name = type(optimizer).__name__
    # A subclass may override the update, and would silently not be asked.
    if type(optimizer) is not getattr(keras.optimizers, name, None) or name not in _SETTINGS:
        raise ModelError(f'optimizer "{name}" has no parameter-server form yet', f"use one of {supported}")
    for option, off in _OPTIONS_OFF.items():
        value = getattr(optimizer, option, None)
        if value not in off:
            raise ModelError(
                f"{name}({option}={value!r}): this option has no parameter-server form yet",
                f"leave {option} out of optimizer()",
            )
    settings = {key: _plain(getattr(optimizer, key)) for key in _SETTINGS[name]}
    try:
        make_optimizer(name, settings)
    except ValueError as e:
        raise ModelError(f"optimizer(): {e}", "parameter servers would refuse it") from e
    return OptimizerSpec(name=name, settings=settings)


def _plain(value: Any) -> float | bool:
    return value if isinstance(value, bool) else float(value)

"""The user's optimizers: the spellings of them that files have, and what partitions need to know of them.

A partition applies the updates, so of a Keras object three things are left: the name and settings that the
compiled optimizer takes, how the worker clips gradients for it, and its learning rate (`learning_rates`).
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from edlz.api.optimizers import RowwiseAdagrad
from edlz.core_ext.optimizers import OPTIMIZERS, make_optimizer
from edlz.services.errors import ModelError
from edlz.services.protocol.messages import OptimizerSpec
from edlz.services.worker.engine.contract.gradient_clipping import Clip
from edlz.services.worker.engine.tensorflow.backend import keras

__all__ = ["ModelOptimizer", "accept_older_spellings"]

_SETTINGS = {known.name: tuple(field.name for field in fields(known)) for known in OPTIMIZERS}

# Options of Keras' optimizers that partitions do not have, with the values that mean "off", and what to do.
_OPTIONS_OFF: dict[str, tuple[tuple[Any, ...], str]] = {
    "use_ema": ((False, None), "leave use_ema out of optimizer()"),
    "gradient_accumulation_steps": ((None, 1), "leave it out, and use --grads_to_wait"),
}


class ModelOptimizer:
    """An optimizer of Keras, read.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
    owner : str
        Whose it is, for messages.

    Attributes
    ----------
    spec : OptimizerSpec
        For any variables; `dense_spec` and `table_spec` say which of them decay.
    keras : keras.optimizers.Optimizer
    clip : Clip
    loss_scale : float or None
        What it multiplies the loss by, at first.

    Raises
    ------
    ModelError
        If partitions have no such optimizer, or not one of its options.
    """

    def __init__(self, optimizer: Any, owner: str = "optimizer()") -> None:
        self.loss_scale: float | None = getattr(optimizer, "loss_scale_factor", None)
        if type(optimizer) is keras.optimizers.LossScaleOptimizer:
            self.loss_scale = optimizer.initial_scale
            optimizer = optimizer.inner_optimizer
        self.spec = _read(optimizer, owner)
        self.keras, self.clip = optimizer, Clip.of(optimizer)

    def dense_spec(self, variables: Sequence[Any]) -> OptimizerSpec:
        """Return what partitions need to know of it, for these dense variables.

        Parameters
        ----------
        variables : sequence of Keras variables
            The dense ones, in the model's order: weight decay may leave some of them alone.
        """
        undecayed: tuple[int, ...] = ()
        if "weight_decay" in self.spec.settings:
            decays = self.keras._use_weight_decay
            undecayed = tuple(i for i, variable in enumerate(variables) if not decays(variable.value))
        return msgspec.structs.replace(self.spec, undecayed=undecayed)

    def table_spec(self, path: str) -> OptimizerSpec:
        """Return what partitions need to know of it, for a table.

        Parameters
        ----------
        path : str
            Of the weight that the table stands for: patterns of names that are not decayed are matched on it.
        """
        settings = dict(self.spec.settings)
        pattern = getattr(self.keras, "_exclude_from_weight_decay_pattern", None)
        if pattern is not None and pattern.search(f"{path}:0"):  # as TensorFlow calls the variable
            settings.pop("weight_decay", None)
        return msgspec.structs.replace(self.spec, settings=settings)


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


def _read(optimizer: Any, owner: str) -> OptimizerSpec:
    supported = ", ".join(_SETTINGS)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ModelError(
            f"{owner} returned {type(optimizer).__name__}, which is no Keras optimizer",
            f"return one of keras.optimizers: {supported}",
        )
    name = type(optimizer).__name__
    # A subclass may override the update, and would silently not be asked.
    is_known = type(optimizer) in (RowwiseAdagrad, getattr(keras.optimizers, name, None))
    if not is_known or name not in _SETTINGS:
        raise ModelError(f'optimizer "{name}" has no compiled form', f"use one of {supported}")
    for option, (off, advice) in _OPTIONS_OFF.items():
        value = getattr(optimizer, option, None)
        if value not in off:
            raise ModelError(f"{name}({option}={value!r}): this option has no compiled form", advice)
    settings = {key: _plain(getattr(optimizer, key)) for key in _SETTINGS[name]}
    try:
        make_optimizer(name, settings)
    except ValueError as e:
        raise ModelError(f"{owner}: {name}: {e}", "its compiled form takes no such value") from e
    if not settings["weight_decay"]:
        del settings["weight_decay"]
    return OptimizerSpec(name=name, settings=settings)


def _plain(value: Any) -> float | bool:
    return value if isinstance(value, bool) else float(value or 0)

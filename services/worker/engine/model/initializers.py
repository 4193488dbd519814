"""Keras initializers as the distribution of one row: partitions make rows one at a time."""

import math
from typing import Any

from edlz.services.errors import ModelError
from edlz.services.protocol.messages import InitializerSpec
from edlz.services.worker.engine.tensorflow.backend import keras

__all__ = ["initializer_spec"]

_TWO_DEVIATIONS = 0.87962566103423978  # standard deviation of a normal of 1 that is cut at two of them

_CHOICES = (
    "use RandomUniform, RandomNormal, TruncatedNormal, Constant, Zeros, Ones, or one of the Glorot, He and Lecun "
    "family"
)


def initializer_spec(initializer: Any, input_dim: int | None, output_dim: int) -> InitializerSpec:
    """Return the distribution that a Keras initializer draws the elements of a table from.

    Parameters
    ----------
    input_dim : int or None
        Rows of the table: the family of VarianceScaling depends on it.

    Raises
    ------
    ModelError
        If the rows do not follow from such a distribution one by one.
    """
    kinds = keras.initializers
    kind, config = type(initializer), {}
    if isinstance(initializer, kinds.Initializer):
        config = initializer.get_config()
    match kind:
        case kinds.RandomUniform:
            return InitializerSpec(kind="uniform", a=float(config["minval"]), b=float(config["maxval"]))
        case kinds.RandomNormal:
            return InitializerSpec(kind="normal", a=float(config["mean"]), b=float(config["stddev"]))
        case kinds.TruncatedNormal:
            return InitializerSpec(
                kind="truncated_normal", a=float(config["mean"]), b=float(config["stddev"])
            )
        case kinds.Zeros:
            return InitializerSpec(kind="constant", a=0.0)
        case kinds.Ones:
            return InitializerSpec(kind="constant", a=1.0)
        case kinds.Constant:
            return _constant(config["value"])
    if kind in _variance_scaling():
        return _scaled(initializer, input_dim, output_dim)
    name = kind.__name__ if not callable(initializer) or config else repr(initializer)
    raise ModelError(f"initializer {name} does not make rows one by one", _CHOICES)


def _variance_scaling() -> set[Any]:
    kinds = keras.initializers
    family = ("Glorot", "He", "Lecun")
    named = {getattr(kinds, f"{name}{form}") for name in family for form in ("Uniform", "Normal")}
    return {kinds.VarianceScaling, *named}


def _constant(value: Any) -> InitializerSpec:
    if isinstance(value, bool | int | float):
        return InitializerSpec(kind="constant", a=float(value))
    raise ModelError(f"initializer Constant has the value {value!r}, not one number", _CHOICES)


def _scaled(initializer: Any, input_dim: int | None, output_dim: int) -> InitializerSpec:
    """Return the distribution of VarianceScaling, for a kernel of shape (input_dim, output_dim)."""
    if input_dim is None:
        raise ModelError(
            f"initializer {type(initializer).__name__} depends on the table's size, which is open",
            "give the layer its input_dim, or an initializer with a range of its own",
        )
    fans = {"fan_in": input_dim, "fan_out": output_dim, "fan_avg": (input_dim + output_dim) / 2}
    variance = initializer.scale / max(1.0, fans[initializer.mode])
    if initializer.distribution == "uniform":
        limit = math.sqrt(3.0 * variance)
        return InitializerSpec(kind="uniform", a=-limit, b=limit)
    if initializer.distribution == "untruncated_normal":
        return InitializerSpec(kind="normal", a=0.0, b=math.sqrt(variance))
    return InitializerSpec(kind="truncated_normal", a=0.0, b=math.sqrt(variance) / _TWO_DEVIATIONS)

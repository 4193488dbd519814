"""Layers for columns of numbers, and for texts that are numbers."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from edlz.api.preprocessing.column_layer import ValueLayer

__all__ = ["Discretization", "Hashing", "LogRound", "Normalizer", "RoundIdentity", "ToNumber"]


class _Bins(ValueLayer):
    """Numbers to integers in [0, count): those that fall elsewhere, and NaN, become `default_value`."""

    def __init__(self, count: int, default_value: int, name: str | None, kwargs: dict[str, Any]) -> None:
        super().__init__(name=name, **kwargs)
        if count < 1:
            raise ValueError(f"{self.name}: {count} bins hold nothing; at least 1 is needed")
        self._count = int(count)
        self.default_value = int(default_value)

    def _type_of(self, dtype: str) -> str:
        return "int64"

    def _binned(self, places: tf.Tensor) -> tf.Tensor:
        """Return the integers of rounded float64 values; the conversion only sees those in range."""
        is_bin = (places >= 0) & (places < self._count)
        bins = tf.cast(tf.where(is_bin, places, 0), tf.int64)
        return tf.where(is_bin, bins, tf.constant(self.default_value, tf.int64))

    def _as_float64(self, values: tf.Tensor) -> tf.Tensor:
        if not (values.dtype.is_integer or values.dtype.is_floating):
            raise TypeError(f"{self.name} got values of type {values.dtype.name}: convert them with ToNumber")
        return tf.cast(values, tf.float64)


@keras.saving.register_keras_serializable(package="edlz")
class RoundIdentity(_Bins):
    """Rounds numbers to the nearest integer, which is the id: for columns that hold small counts or codes.

    Parameters
    ----------
    num_buckets : int
        Ids are in [0, num_buckets).
    default_value : int
        The id of numbers that round to anything else, and of NaN.

    Examples
    --------
    >>> RoundIdentity(num_buckets=5)(tf.constant([1.2, 1.6, 5.0, -1.0])).numpy().tolist()
    [1, 2, 0, 0]
    """

    def __init__(
        self, num_buckets: int, default_value: int = 0, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(num_buckets, default_value, name, kwargs)
        self.num_buckets = self._count

    def _mapped(self, values: tf.Tensor) -> tf.Tensor:
        return self._binned(tf.round(self._as_float64(values)))  # halves to the even neighbour

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "default_value": self.default_value,
        }


@keras.saving.register_keras_serializable(package="edlz")
class LogRound(_Bins):
    """Rounds the logarithm of numbers to the nearest integer, which is the id: for long-tailed columns.

    Parameters
    ----------
    num_bins : int
        Ids are in [0, num_bins).
    default_value : int
        The id of numbers whose logarithm rounds to anything else, of those not above 0, and of NaN.
    base : float, optional
        Of the logarithm; natural without it.

    Examples
    --------
    >>> LogRound(num_bins=4, base=10)(tf.constant([1.0, 9.0, 120.0, 0.0, 1e9])).numpy().tolist()
    [0, 1, 2, 0, 0]
    """

    def __init__(
        self,
        num_bins: int,
        default_value: int = 0,
        base: float | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_bins, default_value, name, kwargs)
        if base is not None and (base <= 0 or base == 1 or not math.isfinite(base)):
            raise ValueError(f"{self.name}: a logarithm has no base {base}; try 2 or 10")
        self.num_bins = self._count
        self.base = base

    def _mapped(self, values: tf.Tensor) -> tf.Tensor:
        logarithms = tf.math.log(self._as_float64(values))  # NaN and -inf where there is none
        unit = 1.0 if self.base is None else math.log(self.base)
        return self._binned(tf.round(logarithms / unit))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_bins": self.num_bins,
            "default_value": self.default_value,
            "base": self.base,
        }


@keras.saving.register_keras_serializable(package="edlz")
class Normalizer(ValueLayer):
    """Shifts and scales numbers: `(x - subtractor) / divisor`.

    Parameters
    ----------
    subtractor, divisor : float
        Mean and standard deviation, for instance, or minimum and range.

    Notes
    -----
    A sparse tensor's missing places stay missing; they do not become `-subtractor / divisor`.

    Examples
    --------
    >>> Normalizer(subtractor=1.0, divisor=2.0)(tf.constant([3.0, 5.0, 7.0])).numpy().tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, subtractor: float, divisor: float, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        if not (math.isfinite(subtractor) and math.isfinite(divisor)) or divisor == 0:
            raise ValueError(f"{self.name}: (x - {subtractor}) / {divisor} is no finite number")
        self.subtractor = float(subtractor)
        self.divisor = float(divisor)

    def _type_of(self, dtype: str) -> str:
        return str(self.compute_dtype)

    def _mapped(self, values: tf.Tensor) -> tf.Tensor:
        if not (values.dtype.is_integer or values.dtype.is_floating):
            raise TypeError(f"{self.name} got values of type {values.dtype.name}: convert them with ToNumber")
        # In 64 bits: a year, or a price in cents, minus its mean is a difference of large numbers.
        scaled = (tf.cast(values, tf.float64) - self.subtractor) / self.divisor
        return tf.cast(scaled, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "subtractor": self.subtractor, "divisor": self.divisor}


@keras.saving.register_keras_serializable(package="edlz")
class ToNumber(ValueLayer):
    """Reads texts as numbers, an empty one as a default.

    Parameters
    ----------
    out_type : str or tf.DType
        float32, float64, int32 or int64.
    default_value : float or int
        What an empty text, or one of blanks only, becomes.

    Raises
    ------
    tf.errors.InvalidArgumentError
        When it meets a text that is no number of that type; the message has the text.

    Examples
    --------
    >>> ToNumber("float32", default_value=-1.0)(tf.constant(["1.5", "", " 2"])).numpy().tolist()
    [1.5, -1.0, 2.0]
    """

    _TYPES = ("float32", "float64", "int32", "int64")

    def __init__(
        self,
        out_type: Any = "float32",
        default_value: float = 0.0,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.out_type = str(tf.as_dtype(out_type).name)
        if self.out_type not in self._TYPES:
            raise ValueError(f"{self.name}: out_type={self.out_type} is none of {', '.join(self._TYPES)}")
        if self.out_type.startswith("int") and default_value != int(default_value):
            raise ValueError(f"{self.name}: default_value={default_value} is no {self.out_type}")
        self.default_value = default_value

    def _type_of(self, dtype: str) -> str:
        return self.out_type

    def _mapped(self, values: tf.Tensor) -> tf.Tensor:
        if values.dtype != tf.string:
            raise TypeError(f"{self.name} got values of type {values.dtype.name}: they are numbers already")
        texts = tf.strings.strip(values)
        is_missing = texts == ""
        numbers = tf.strings.to_number(tf.where(is_missing, "0", texts), self.out_type)
        return tf.where(is_missing, tf.constant(self.default_value, self.out_type), numbers)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "out_type": self.out_type, "default_value": self.default_value}


Hashing = keras.layers.Hashing


def Discretization(bins: Sequence[float], **kwargs: Any) -> keras.layers.Discretization:  # noqa: N802
    """Return Keras' layer that numbers the ranges between bounds.

    Parameters
    ----------
    bins : sequence of float
        The bounds, ascending: `[0, 1, 2]` makes (-inf, 0), [0, 1), [1, 2), [2, inf), numbered 0 to 3.
    **kwargs
        Of `keras.layers.Discretization`.
    """
    return keras.layers.Discretization(bin_boundaries=list(bins), **kwargs)

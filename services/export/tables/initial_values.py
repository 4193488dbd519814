"""The initial values of embedding rows as TensorFlow operations: a third twin of core_ext/initializers.c.

A served model computes by them what a partition would give for an id that was never trained, bit by bit.  It
is the NumPy twin operation for operation, in float64.  What it adds and multiplies by lies in a variable, not in
constants: those of neighbouring operations a graph optimizer may join, which could change the last bit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from edlz.core_ext import initializers_numpy as twin
from edlz.core_ext.initializers import Initializer
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["InitialValues"]

_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_ROOT_OF_HALF = 0x3FE6A09E667F3BCD
_ONE = 0x3FF0000000000000
_BELOW_ONE = 1.0 - 2.0**-53


class InitialValues(tf.Module):  # type: ignore[misc]
    """The initial values of one table's rows.

    Parameters
    ----------
    initializer : Initializer
        Of a random distribution: a constant needs no operations.
    seed : int
        The table's, in [0, 2**64).
    dim : int
    """

    def __init__(self, initializer: Initializer, seed: int, dim: int) -> None:
        super().__init__()
        assert initializer.kind != "constant"
        self._kind, self._dim = initializer.kind, dim
        self._mixed_seed = twin.mix64(twin.mix64(seed))
        self._names = list(_NUMBERS)
        a, b = initializer.a, initializer.b
        self._polynomials = {name: len(numbers) for name, numbers in _POLYNOMIALS.items()}
        coefficients = [number for numbers in _POLYNOMIALS.values() for number in numbers]
        numbers = [*_NUMBERS.values(), a, b, b - a, *coefficients]
        self.numbers = tf.Variable(np.array(numbers, np.float64), trainable=False, name="numbers")
        self._largest = float(twin.largest_below(b, a))

    def __call__(self, ids: Any) -> Any:
        """Return the rows.

        Parameters
        ----------
        ids : int64 tensor, shape (n,)

        Returns
        -------
        float32 tensor, shape (n, dim)
        """
        numbers = _Numbers(self.numbers.read_value(), self._names, self._polynomials)
        keys = _mix64(_mix64(tf.bitcast(ids, tf.uint64)) ^ _word(self._mixed_seed))
        bits = _mix64(keys[:, tf.newaxis] + tf.cast(tf.range(self._dim), tf.uint64)[tf.newaxis, :])
        if self._kind == "uniform":
            upper = tf.cast(tf.bitcast(_shifted(bits, 33), tf.int64), tf.float64)
            values = tf.cast(numbers["a"] + numbers["width"] * (upper * numbers["2**-31"]), tf.float32)
            return tf.minimum(values, tf.constant(self._largest, tf.float32))
        uniform = _open_uniform(bits, numbers)
        if self._kind == "normal":
            deviations = _quantile(uniform, numbers)
        else:
            within = _quantile(numbers["below"] + numbers["within"] * uniform, numbers)
            deviations = tf.clip_by_value(within, -numbers["2"], numbers["2"])
        return tf.cast(numbers["a"] + numbers["b"] * deviations, tf.float32)


_NUMBERS = {
    "0": 0.0,
    "1": 1.0,
    "2": 2.0,
    "1/2": 0.5,
    "2**-31": 2.0**-31,
    "below 1": _BELOW_ONE,
    "below": twin.BELOW,
    "within": twin.WITHIN,
    "middle": 0.425,
    "middle squared": 0.180625,
    "near": 1.6,
    "far": 5.0,
    "1023": 1023.0,
    "ln 2": 0.69314718055994530942,
}
_POLYNOMIALS = {
    "middle over": twin.MIDDLE_OVER,
    "middle under": twin.MIDDLE_UNDER,
    "near over": twin.NEAR_OVER,
    "near under": twin.NEAR_UNDER,
    "far over": twin.FAR_OVER,
    "far under": twin.FAR_UNDER,
    "artanh": tuple(1.0 / odd for odd in range(1, 22, 2)),
}


class _Numbers:
    """The numbers of a computation by name, cut from the variable that holds them."""

    def __init__(self, tensor: Any, names: Sequence[str], polynomials: dict[str, int]) -> None:
        sizes = [1] * (len(names) + 3) + list(polynomials.values())
        parts = tf.split(tensor, sizes)
        scalars = [*names, "a", "b", "width"]
        self._scalars = {name: part[0] for name, part in zip(scalars, parts, strict=False)}
        self._polynomials = dict(zip(polynomials, parts[len(scalars) :], strict=True))

    def __getitem__(self, name: str) -> Any:
        return self._scalars[name]

    def polynomial(self, name: str, x: Any) -> Any:
        coefficients = tf.unstack(self._polynomials[name])
        total = tf.fill(tf.shape(x), coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            total = total * x + coefficient
        return total


def _word(value: int) -> Any:
    return tf.constant(value, tf.uint64)


def _shifted(words: Any, count: int) -> Any:
    return tf.bitwise.right_shift(words, _word(count))


def _mix64(words: Any) -> Any:
    z = words + _word(_GOLDEN)
    z = tf.bitwise.bitwise_xor(z, _shifted(z, 30)) * _word(_FACTORS[0])
    z = tf.bitwise.bitwise_xor(z, _shifted(z, 27)) * _word(_FACTORS[1])
    return tf.bitwise.bitwise_xor(z, _shifted(z, 31))


def _open_uniform(bits: Any, numbers: _Numbers) -> Any:
    return tf.bitcast(tf.bitwise.bitwise_or(_shifted(bits, 12), _word(_ONE)), tf.float64) - numbers["below 1"]


def _quantile(p: Any, numbers: _Numbers) -> Any:
    from_half = p - numbers["1/2"]
    r = numbers["middle squared"] - from_half * from_half
    middle = from_half * numbers.polynomial("middle over", r) / numbers.polynomial("middle under", r)
    is_lower = from_half < numbers["0"]
    r = tf.sqrt(-_logarithm(tf.where(is_lower, p, numbers["1"] - p), numbers))
    near, far = r - numbers["near"], r - numbers["far"]
    of_near = numbers.polynomial("near over", near) / numbers.polynomial("near under", near)
    of_far = numbers.polynomial("far over", far) / numbers.polynomial("far under", far)
    tail = tf.where(r > numbers["far"], of_far, of_near)
    tail = tf.where(is_lower, -tail, tail)
    return tf.where(tf.abs(from_half) <= numbers["middle"], middle, tail)


def _logarithm(x: Any, numbers: _Numbers) -> Any:
    bits = tf.bitcast(x, tf.uint64)
    biased_exponent = _shifted(bits - _word(_ROOT_OF_HALF) + _word(_ONE), 52)
    m = tf.bitcast(bits - (tf.bitwise.left_shift(biased_exponent, _word(52)) - _word(_ONE)), tf.float64)
    s = (m - numbers["1"]) / (m + numbers["1"])
    series = numbers.polynomial("artanh", s * s)
    exponent = tf.cast(tf.bitcast(biased_exponent, tf.int64), tf.float64) - numbers["1023"]
    return numbers["2"] * s * series + exponent * numbers["ln 2"]

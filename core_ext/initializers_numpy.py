"""NumPy twin of initializers.c: the initial values of rows, operation for operation in float64, same bits."""

import numpy as np
import numpy.typing as npt

from edlz.core_ext.initializers import Initializer
from edlz.core_ext.memory import Float32Array

__all__ = ["initial_values", "mix64"]

_Words = npt.NDArray[np.uint64]
_Doubles = npt.NDArray[np.float64]

_MASK = 2**64 - 1


def mix64(value: int) -> int:
    """Return the hash of hashing.h, SplitMix64's output function.

    References
    ----------
    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    return int(_mix64(np.array([value & _MASK], np.uint64))[0])


def initial_values(initializer: Initializer, seed: int, row_id: int, count: int) -> Float32Array:
    """Return the first values of a row.

    Parameters
    ----------
    initializer : Initializer
    seed : int
        In [0, 2**64).
    row_id : int
        Any int64.
    count : int
        The row's dimension.

    Returns
    -------
    ndarray, shape (count,), float32
    """
    a, b = initializer.a, initializer.b
    if initializer.kind == "constant":
        return np.full(count, a, np.float32)
    # The seed is mixed once more, or else row 0 of seed 1 would be row 1 of seed 0.
    key = mix64(mix64(row_id) ^ mix64(mix64(seed)))
    bits = _mix64(np.uint64(key) + np.arange(count, dtype=np.uint64))
    if initializer.kind == "uniform":
        values = (a + (b - a) * ((bits >> np.uint64(33)).astype(np.float64) * 2.0**-31)).astype(np.float32)
        return np.minimum(values, largest_below(b, a))
    uniform = _open_uniform(bits)
    if initializer.kind == "normal":
        return (a + b * quantile(uniform)).astype(np.float32)
    within_two = np.clip(quantile(BELOW + WITHIN * uniform), -2.0, 2.0)
    return (a + b * within_two).astype(np.float32)


BELOW, WITHIN = 0.022750131948179207, 0.95449973610364159  # Phi(-2), Phi(2) - Phi(-2)


def _mix64(words: _Words) -> _Words:
    z = words + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def largest_below(b: float, a: float) -> np.float32:
    """Return the largest float32 below `b`, or `a` if that is larger."""
    upper = np.float32(b)
    if float(upper) >= b:
        upper = np.nextafter(upper, np.float32(-np.inf))
    return max(upper, np.float32(a))


def _open_uniform(bits: _Words) -> _Doubles:
    """Return (k + 1/2) / 2**52, with k the upper 52 bits."""
    return ((bits >> np.uint64(12)) | np.uint64(0x3FF0000000000000)).view(np.float64) - (1.0 - 2.0**-53)


def quantile(p: _Doubles) -> _Doubles:
    """Return the quantiles of the standard normal distribution.

    References
    ----------
    Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37
    (1988), routine PPND16.
    """
    from_half = p - 0.5
    r = 0.180625 - from_half * from_half
    middle = from_half * _polynomial(MIDDLE_OVER, r) / _polynomial(MIDDLE_UNDER, r)
    r = np.sqrt(-_logarithm(np.where(from_half < 0.0, p, 1.0 - p)))
    near = _polynomial(NEAR_OVER, r - 1.6) / _polynomial(NEAR_UNDER, r - 1.6)
    far = _polynomial(FAR_OVER, r - 5.0) / _polynomial(FAR_UNDER, r - 5.0)
    tail = np.where(r > 5.0, far, near)
    tail = np.where(from_half < 0.0, -tail, tail)
    return np.where(np.abs(from_half) <= 0.425, middle, tail)


def _polynomial(coefficients: tuple[float, ...], x: _Doubles) -> _Doubles:
    total = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def _logarithm(x: _Doubles) -> _Doubles:
    """Return ln x for normal x in (0, 1), by 2 artanh((m - 1) / (m + 1)) of the mantissa m near 1."""
    m, exponent = np.frexp(x)
    is_small = m < 0.70710678118654752440
    m, exponent = np.where(is_small, 2.0 * m, m), np.where(is_small, exponent - 1, exponent)
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    series = np.zeros_like(s)
    for odd in range(21, 0, -2):
        series = series * square + 1.0 / odd
    return 2.0 * s * series + exponent * 0.69314718055994530942


MIDDLE_OVER = (
    3.3871328727963666080e0,
    1.3314166789178437745e2,
    1.9715909503065514427e3,
    1.3731693765509461125e4,
    4.5921953931549871457e4,
    6.7265770927008700853e4,
    3.3430575583588128105e4,
    2.5090809287301226727e3,
)
MIDDLE_UNDER = (
    1.0,
    4.2313330701600911252e1,
    6.8718700749205790830e2,
    5.3941960214247511077e3,
    2.1213794301586595867e4,
    3.9307895800092710610e4,
    2.8729085735721942674e4,
    5.2264952788528545610e3,
)
NEAR_OVER = (
    1.42343711074968357734e0,
    4.63033784615654529590e0,
    5.76949722146069140550e0,
    3.64784832476320460504e0,
    1.27045825245236838258e0,
    2.41780725177450611770e-1,
    2.27238449892691845833e-2,
    7.74545014278341407640e-4,
)
NEAR_UNDER = (
    1.0,
    2.05319162663775882187e0,
    1.67638483018380384940e0,
    6.89767334985100004550e-1,
    1.48103976427480074590e-1,
    1.51986665636164571966e-2,
    5.47593808499534494600e-4,
    1.05075007164441684324e-9,
)
FAR_OVER = (
    6.65790464350110377720e0,
    5.46378491116411436990e0,
    1.78482653991729133580e0,
    2.96560571828504891230e-1,
    2.65321895265761230930e-2,
    1.24266094738807843860e-3,
    2.71155556874348757815e-5,
    2.01033439929228813265e-7,
)
FAR_UNDER = (
    1.0,
    5.99832206555887937690e-1,
    1.36929880922735805310e-1,
    1.48753612908506148525e-2,
    7.86869131145613259100e-4,
    1.84631831751005468180e-5,
    1.42151175831644588870e-7,
    2.04426310338993978564e-15,
)

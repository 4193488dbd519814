"""The scalars of a step that depend on how many steps were taken: pure functions, float32 as in Keras 3.

Powers are products in float64 that are rounded once: the C library's pow may differ in the last bit from
machine to machine, products do not.

A float32 operation is done in Python's floats and rounded by `round_32`: for +, -, *, / and the square root
of float32 numbers float64 is wide enough that rounding twice gives the same bits (Figueroa, "When is double
rounding innocuous?", SIGNUM Newsletter 30, 1995).  It takes a tenth of the time of NumPy's scalars.
"""

from ctypes import c_float
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["momentum_product", "power", "power_32", "round_32", "warming_momentum"]

# Nadam's momenta rise to beta_1 by this (Dozat, ICLR workshop 2016, section 3.3).
_WARMING = 0.96
# From here on 1 - 0.96**t / 2 is 1 in float32 (the half is below 2**-25 from t = 408 on).
_WARM_STEPS = 512
# Below this 1 - P is 1 in float32, so nothing depends on P any longer.
_VANISHED = np.float32(2**-26)
_MOST_BITS = 64  # of an exponent


def round_32(value: float) -> float:
    """Return the nearest float32, as a Python float; infinity beyond the largest."""
    return c_float(value).value


def power(base: float, exponent: int) -> float:
    """Return ``base**exponent`` by repeated squaring in float64, with 0 <= exponent < 2**64."""
    result = 1.0
    for square in _squares(base):
        if exponent & 1:
            result *= square
        exponent >>= 1
        if not exponent:
            break
    return result


def power_32(base: float, exponent: int) -> float:
    """Return ``float32(base)**exponent``, rounded to float32."""
    return round_32(power(round_32(base), exponent))


def warming_momentum(beta_1: float, step: int) -> float:
    """Return Nadam's momentum of a step: ``mu_t = beta_1 * (1 - 0.96**t / 2)``."""
    return round_32(round_32(beta_1) * _warmth(step))


def momentum_product(beta_1: float, steps: int) -> np.float32:
    """Return the product of Nadam's momenta of the first steps: ``P_t = mu_1 * ... * mu_t``.

    Each of the two factors is multiplied in and rounded to float32, step after step, as Keras does with its
    running product: a server that is restored at any step goes on with the same bits.

    Parameters
    ----------
    beta_1 : float
        In [0, 1).
    steps : int
        t, >= 0.

    Returns
    -------
    float32
        0 as soon as the product is below 2**-26.
    """
    # Doubling lengths: a training that goes through all steps computes each product about twice.
    products = _products(round_32(beta_1), max(256, 1 << steps.bit_length()))
    return products[steps] if steps < len(products) else np.float32(0)


def _warmth(step: int) -> float:
    return round_32(1.0 - 0.5 * power_32(_WARMING, step))  # halving is exact


@lru_cache(maxsize=64)
def _squares(base: float) -> tuple[float, ...]:
    """Return base, base**2, base**4 and so on."""
    squares = [base]
    while len(squares) < _MOST_BITS:
        squares.append(squares[-1] * squares[-1])
    return tuple(squares)


@lru_cache(maxsize=16)
def _products(beta_1: float, length: int) -> npt.NDArray[np.float32]:
    """Return P_0, P_1, ... up to `length` of them, without those that have vanished."""
    factors = np.ones((length, 2), np.float32)  # row t: beta_1 and what it is multiplied by; row 0: P_0 = 1
    factors[1:, 0] = beta_1
    warm = min(length, _WARM_STEPS)
    factors[1:warm, 1] = [_warmth(step) for step in range(1, warm)]
    with np.errstate(under="ignore"):
        products: npt.NDArray[np.float32] = np.multiply.accumulate(factors.reshape(-1))[1::2]
    return products[products >= _VANISHED]

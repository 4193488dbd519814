"""The scalars of a step that depend on how many steps were taken: pure functions, float32 as in Keras 3.

Powers are products in float64 that are rounded once: the C library's pow may differ in the last bit from
machine to machine, products do not.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["momentum_product", "power", "power_32", "warming_momentum"]

# Nadam's momenta rise to beta_1 by this (Dozat, ICLR workshop 2016, section 3.3).
_WARMING = 0.96
# From here on 1 - 0.96**t / 2 is 1 in float32 (the half is below 2**-25 from t = 408 on).
_WARM_STEPS = 512
# Below this 1 - P is 1 in float32, so nothing depends on P any longer.
_VANISHED = np.float32(2**-26)


def power(base: float, exponent: int) -> float:
    """Return ``base**exponent`` by repeated squaring in float64, with exponent >= 0."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def power_32(base: float, exponent: int) -> np.float32:
    """Return ``float32(base)**exponent``, rounded to float32."""
    return np.float32(power(float(np.float32(base)), exponent))


def warming_momentum(beta_1: float, step: int) -> np.float32:
    """Return Nadam's momentum of a step: ``mu_t = beta_1 * (1 - 0.96**t / 2)``."""
    return np.float32(beta_1) * _warmth(step)


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
    products = _products(float(np.float32(beta_1)), max(256, 1 << steps.bit_length()))
    return products[steps] if steps < len(products) else np.float32(0)


def _warmth(step: int) -> np.float32:
    return np.float32(1) - np.float32(0.5) * power_32(_WARMING, step)


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

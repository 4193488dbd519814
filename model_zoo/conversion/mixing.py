"""Mixes 64-bit numbers with NumPy: splits, orders and made-up values that depend on the number alone.

`blocks.ids` has the same function on tensors.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["mixed", "unit_interval"]

_SHIFTS, _FACTORS = (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def mixed(numbers: npt.NDArray[np.uint64] | npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return a bijection of 64-bit numbers in which each bit depends on all bits of the argument.

    References
    ----------
    Steele, Lea, Flood, OOPSLA 2014, the finaliser of SplitMix64.
    """
    x = numbers.astype(np.uint64)  # a copy
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(_SHIFTS[-1])
    return x


def unit_interval(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return the upper 53 bits of numbers as floats in [0, 1)."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53

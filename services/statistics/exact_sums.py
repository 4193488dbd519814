"""The sum of numbers, and that of their squares, without any rounding: whole numbers of a very small unit.

A float64 is a whole number below 2**53, times a power of two.  Those of one power are added as limbs of 18 bits, whose
sums over a block are whole numbers that float64 and int64 hold; the sums of all powers meet in one long integer.  So the
order of adding changes nothing, and the mean and the variance are rounded once, at the end.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK", "ExactSums"]

BLOCK = 1 << 16  # most values at once: sums of limbs stay below 2**53 and 2**63
_DIGITS = 53  # of a float64
_LOWEST = -1073  # exponent of the smallest float64, as `frexp` gives it
_FLOAT_UNIT = _DIGITS - _LOWEST  # sums of floats are in units of 2**-1126
_LIMB, _MASK = 18, (1 << 18) - 1
_INT_LIMB, _INT_MASK = 21, (1 << 21) - 1

Array = npt.NDArray[Any]


@dataclass
class ExactSums:
    """Sums so far.

    Attributes
    ----------
    total, squares : int
        In units of 2**-unit and 2**(-2 * unit).
    unit : int
        0 for whole numbers.
    """

    total: int = 0
    squares: int = 0
    unit: int = 0

    @classmethod
    def of_kind(cls, *, is_whole: bool) -> "ExactSums":
        return cls(unit=0 if is_whole else _FLOAT_UNIT)

    def add(self, values: Array) -> None:
        """Add values of this kind: int64, or float64 that are all finite."""
        for first in range(0, len(values), BLOCK):
            block = values[first : first + BLOCK]
            total, squares = _of_floats(block) if self.unit else _of_integers(block)
            self.total += total
            self.squares += squares

    def merge(self, other: "ExactSums") -> None:
        self.total += other.total
        self.squares += other.squares

    def mean(self, count: int) -> float:
        """Return the mean of so many values, rounded once."""
        return _rounded(Fraction(self.total, count << self.unit))

    def variance(self, count: int) -> float:
        """Return the variance of a sample of so many values, two at least: divided by one less than there are."""
        deviations = Fraction(count * self.squares - self.total**2, count)
        return _rounded(deviations / ((count - 1) << 2 * self.unit))


def _rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _of_integers(values: Array) -> tuple[int, int]:
    high, middle, low = values >> 2 * _INT_LIMB, (values >> _INT_LIMB) & _INT_MASK, values & _INT_MASK
    total = squares = 0
    for place, limb in enumerate((low, middle, high)):
        total += int(limb.sum()) << place * _INT_LIMB
    products = (int(low @ low), 2 * int(low @ middle), 2 * int(low @ high) + int(middle @ middle))
    for place, product in enumerate((*products, 2 * int(middle @ high), int(high @ high))):
        squares += product << place * _INT_LIMB
    return total, squares


def _of_floats(values: Array) -> tuple[int, int]:
    if not len(values):
        return 0, 0
    fractions, exponents = np.frexp(values)
    whole = np.ldexp(fractions, _DIGITS).astype(np.int64)
    lowest = int(exponents.min())
    places = exponents - lowest
    high, middle, low = whole >> 2 * _LIMB, (whole >> _LIMB) & _MASK, whole & _MASK
    products = (low * low, 2 * low * middle, 2 * low * high + middle * middle, 2 * middle * high, high * high)
    shift = lowest - _LOWEST
    return _joined((low, middle, high), places, shift, 1), _joined(products, places, 2 * shift, 2)


def _joined(limbs: tuple[Array, ...], places: Array, shift: int, step: int) -> int:
    """Return the sum of numbers that are given in limbs; `step`: what an exponent more shifts them by."""
    joined = 0
    for number, limb in enumerate(limbs):
        sums = np.bincount(places, weights=limb)
        for place in np.flatnonzero(sums).tolist():
            joined += int(sums[place]) << (shift + step * place + number * _LIMB)
    return joined

"""Owns the description of how embedding rows begin; the numbers themselves are made where the rows are."""

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["DISTRIBUTIONS", "Initializer"]

DISTRIBUTIONS = ("constant", "uniform", "normal", "truncated_normal")

_LARGEST_DEVIATION = 9.0  # of a normal value in units of b; 52 random bits reach 8.2


@dataclass(frozen=True)
class Initializer:
    """The distribution of a row's initial values.

    An initial value is a pure function of the table's seed, the row's id and the element's place in the row:
    the same bits whenever and wherever the row is made.

    Parameters
    ----------
    kind : str
        "constant": `a`.  "uniform": in [a, b), or `a` if that is `b`.  "normal": mean `a`, standard deviation
        `b`.  "truncated_normal": the same within two standard deviations of the mean (`b` is the deviation
        before the tails are cut off; it is 0.88 of that afterwards).
    a, b : float

    Raises
    ------
    ValueError
        If there is no such distribution, or a number does not fit it.
    """

    kind: str
    a: float
    b: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in DISTRIBUTIONS:
            raise ValueError(
                f'initializer "{self.kind}" is not supported; use one of {", ".join(DISTRIBUTIONS)}'
            )
        for name, value in (("a", self.a), ("b", self.b)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name}={value!r} of initializer {self.kind} is not a number")
        if self.kind == "uniform" and not self.a <= self.b:
            raise ValueError(f"initializer uniform is empty between a={self.a} and b={self.b}; exchange them")
        if self.kind in ("normal", "truncated_normal") and not self.b >= 0:
            raise ValueError(f"standard deviation b={self.b} of initializer {self.kind} is negative")
        reach = abs(self.a) + _LARGEST_DEVIATION * abs(self.b)
        if not (math.isfinite(reach) and reach <= float(np.finfo(np.float32).max)):
            raise ValueError(f"a={self.a}, b={self.b} of initializer {self.kind} reach beyond float32")

"""How far float32 results may be off: bounds that follow from the operations, not from a processor at hand.

An operation that is rounded as IEEE 754 says is off by 2**-24 of its result at most, half a unit in the last
place: `UNIT`.  `Analysis` runs a formula in float64 and carries along what each operation's error does to each
later result, in first order (Higham, "Accuracy and Stability of Numerical Algorithms", chapters 2 and 3), so
an error that a decaying average forgets is forgotten here too.
"""

from dataclasses import dataclass

import numpy as np
import pytest

__all__ = ["IEEE", "TENSORFLOW", "UNIT", "Analysis", "Precision", "near", "roundings"]

UNIT = 2.0**-24
_HIGHER_ORDERS = 1.01  # products of errors: 1e-4 of the first order for sums of errors below 1e-4


def roundings(count):
    """Return the relative error of a result of so many float32 operations in a row that do not cancel."""
    return count * UNIT / (1 - count * UNIT)


def near(expected, operations, *, size=None):
    """Return what equals results that may differ by the roundings of so many operations on either side.

    Parameters
    ----------
    expected : array_like
    operations : how many float32 operations in a row lead to a result, at most
    size : how large the numbers on the way are; by default as the largest one that is expected
    """
    largest = float(np.max(np.abs(expected), initial=0) if size is None else size)
    return pytest.approx(np.asarray(expected), rel=0, abs=2 * roundings(operations) * largest)


@dataclass(frozen=True)
class Precision:
    """How far an operation may be off, in `UNIT`; a sum, a difference or a product by one in any case."""

    quotient: float = 1
    root: float = 1
    power: float = 1


IEEE = Precision()
# Eigen's kernels.  It may make a quotient of a product with the reciprocal, and that of the processor's estimate,
# off by 1.5 * 2**-12 (says the manual of either maker), by one step of Newton's method: 2.25 units are left of
# the estimate, and two roundings and the product's come to them.  Of a reciprocal root 3.4 are left: with all
# roundings less than root and quotient have here together.  2 ulps (4 units) are what Eigen says of its roots
# (MathFunctionsImpl.h); as much is allowed for powers.
TENSORFLOW = Precision(quotient=5.25, root=4, power=4)


class Analysis:
    """Makes numbers whose errors are counted together."""

    def __init__(self):
        self.operations = []  # of each error, in the order of the rows of `Number.errors`

    def exact(self, values):
        """Return numbers that float32 has as they are."""
        values = np.atleast_1d(np.array(values, np.float64))
        return Number(self, values, np.zeros((0, *values.shape)))


class Number:
    """Float64 numbers, and what the rounding error of each operation before adds to them.

    NumPy's functions that `steps_numpy` uses take them.

    Attributes
    ----------
    values : ndarray, float64
    errors : ndarray, shape (operations, *values.shape)
        For an operation that is off by one `UNIT`.
    """

    def __init__(self, analysis, values, errors):
        self._analysis, self.values, self.errors = analysis, values, errors

    def bounds(self, precision):
        """Return by how much the results of float32 operations of this precision may differ."""
        units = [getattr(precision, name, 1) for name in self._analysis.operations[: len(self.errors)]]
        return _HIGHER_ORDERS * np.tensordot(units, np.abs(self.errors), 1)

    def allows(self, results, precision):
        """Whether float32 results are within the bounds, element by element."""
        return np.abs(np.asarray(results, np.float64) - self.values) <= self.bounds(precision)

    def __setitem__(self, key, other):
        assert key == slice(None)
        self.values, self.errors = other.values, other.errors

    # -- operations

    def _result(self, values, errors, operation):
        """A result with the errors that it inherits and its own."""
        padded = np.zeros((len(self._analysis.operations) + 1, *values.shape))
        padded[: len(errors)] = errors
        padded[-1] = values * UNIT
        self._analysis.operations.append(operation)
        return Number(self._analysis, values, padded)

    def _linear(self, by_self, other, by_other):
        """Errors of a result with these derivatives by the two operands."""
        errors = np.zeros((max(len(self.errors), len(other.errors)), *np.broadcast(by_self, by_other).shape))
        errors[: len(self.errors)] += self.errors * by_self
        errors[: len(other.errors)] += other.errors * by_other
        return errors

    def _number(self, other):
        return other if isinstance(other, Number) else self._analysis.exact(other)

    def __neg__(self):
        return Number(self._analysis, -self.values, -self.errors)

    def __abs__(self):
        return Number(self._analysis, np.abs(self.values), self.errors * np.sign(self.values))

    def __add__(self, other):
        other = self._number(other)
        values = self.values + other.values
        ones = np.ones_like(values)
        return self._result(values, self._linear(ones, other, ones), "sum")

    def __sub__(self, other):
        return self + -self._number(other)

    def __rsub__(self, other):
        return self._number(other) - self

    def __mul__(self, other):
        other = self._number(other)
        errors = self._linear(other.values, other, self.values)
        return self._result(self.values * other.values, errors, "product")

    def __truediv__(self, other):
        other = self._number(other)
        values = self.values / other.values
        return self._result(values, self._linear(1 / other.values, other, -values / other.values), "quotient")

    def sqrt(self):
        values = np.sqrt(self.values)
        slope = np.divide(0.5, values, out=np.zeros_like(values), where=values > 0)
        return self._result(values, self.errors * slope, "root")

    def power(self, exponent):
        """Return a whole power of exact numbers."""
        assert not len(self.errors)
        return self._result(self.values**exponent, self.errors, "power")

    def __gt__(self, other):
        return self._is_above(self._number(other))

    def __lt__(self, other):
        return self._number(other)._is_above(self)

    def _is_above(self, other):
        difference, bounds = self.values - other.values, self.bounds(TENSORFLOW) + other.bounds(TENSORFLOW)
        assert np.all((np.abs(difference) > bounds) | (bounds == 0)), "float32 may find the other one larger"
        return difference > 0

    # -- NumPy's names of them

    def __array_ufunc__(self, function, method, *operands, **options):
        known = {np.sqrt: Number.sqrt, np.absolute: abs, np.copysign: _copysign}
        if method != "__call__" or options or function not in known:
            return NotImplemented
        return known[function](*operands)

    def __array_function__(self, function, types, operands, options):
        if function is not np.where or options:
            return NotImplemented
        condition, left, right = operands[0], self._number(operands[1]), self._number(operands[2])
        values = np.where(condition, left.values, right.values)
        return Number(self._analysis, values, left._linear(condition * 1.0, right, ~condition * 1.0))


def _copysign(sizes, signs):
    _ = signs > 0  # refuses those that float32 may find otherwise
    return signs._number(np.copysign(sizes, signs.values))

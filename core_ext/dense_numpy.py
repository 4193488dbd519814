"""NumPy twins of the dense kernels: same signatures, same bits, several times slower.

They say what each kernel computes and are the measure in its tests.  They do not check their arrays: what
`dense` refuses is undefined here.
"""

import math
from collections.abc import Sequence

import numpy as np

from edlz.core_ext.memory import Float32Array
from edlz.core_ext.steps_numpy import take_step

__all__ = ["add", "apply", "clip", "copy", "divide", "scale", "squared_norm", "tree_mean"]

_LANES = 8
_MAX_HEIGHT = 32  # of the tree of `tree_mean`


def copy(out: Float32Array, values: Float32Array) -> None:
    """Copy `values` to `out`.

    Parameters
    ----------
    out : ndarray, shape (n,), float32
        Written; may be `values`.
    values : ndarray, shape (n,), float32

    Raises
    ------
    ValueError
        If the arrays do not fit each other; nothing has been changed.
    """
    np.copyto(out, values)


def add(accumulator: Float32Array, gradient: Float32Array) -> None:
    """Add a gradient to a sum, in place: ``accumulator += gradient``.

    Parameters
    ----------
    accumulator : ndarray, shape (n,), float32
        Written.
    gradient : ndarray, shape (n,), float32

    Raises
    ------
    ValueError
        If the arrays do not fit each other; nothing has been changed.

    Notes
    -----
    Float addition is not associative: whoever promises equal bits adds gradients in a fixed order.
    """
    with np.errstate(all="ignore"):
        np.add(accumulator, gradient, out=accumulator)


def divide(accumulator: Float32Array, divisor: float) -> None:
    """Divide a sum, in place: ``accumulator /= float32(divisor)``.

    A true division: multiplying by the reciprocal would round twice.

    Parameters
    ----------
    accumulator : ndarray, shape (n,), float32
        Written.
    divisor : float
        Rounded to float32 first.

    Raises
    ------
    ZeroDivisionError
        If `divisor` is 0 in float32; nothing has been changed.
    ValueError
        If the array does not fit.
    """
    with np.errstate(all="ignore"):
        divisor_32 = np.float32(divisor)
        if divisor_32 == 0:
            raise ZeroDivisionError(
                "divisor is 0 in float32; divide by the number of gradients that were added"
            )
        np.divide(accumulator, divisor_32, out=accumulator)


def scale(vector: Float32Array, factor: float) -> None:
    """Multiply a vector, in place: ``vector *= float32(factor)``.

    Parameters
    ----------
    vector : ndarray, shape (n,), float32
        Written.
    factor : float
        Rounded to float32 first.

    Raises
    ------
    ValueError
        If the array does not fit.
    """
    with np.errstate(all="ignore"):
        np.multiply(vector, np.float32(factor), out=vector)


def clip(vector: Float32Array, limit: float) -> None:
    """Bring each element within -limit and limit, in place; a NaN stays one.

    Parameters
    ----------
    vector : ndarray, shape (n,), float32
        Written.
    limit : float
        At least 0; rounded to float32 first.

    Raises
    ------
    ValueError
        If the limit is negative or a NaN, or the array does not fit; nothing has been changed.
    """
    with np.errstate(all="ignore"):
        bound = np.float32(limit)
    if math.isnan(bound) or bound < 0:
        raise ValueError(f"limit={limit} is no bound of a size; give 0 or more")
    vector[vector > bound] = bound
    vector[vector < -bound] = -bound


def squared_norm(vector: Float32Array) -> float:
    """Return the sum of the squares.

    Parameters
    ----------
    vector : ndarray, shape (n,), float32

    Returns
    -------
    float
        Added up in float64 in a fixed order, the same on every processor: element i is added to sum i % 8,
        in the order of the elements, and the eight sums ``s`` make
        ``((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))``.

    Raises
    ------
    ValueError
        If the array does not fit.
    """
    squares = np.zeros((-(-len(vector) // _LANES) + 1, _LANES), np.float64)
    with np.errstate(all="ignore"):
        squares.reshape(-1)[: len(vector)] = np.square(vector, dtype=np.float64)
        # accumulate goes from row to row, where sum may add pairs.
        s = np.add.accumulate(squares, axis=0)[-1]
        return float(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])))


def tree_mean(
    out: Float32Array, vectors: Sequence[Float32Array], places: Sequence[int], divisor: float
) -> None:
    """Add vectors up as a binary tree over places, and divide the sum: ``out = root / float32(divisor)``.

    A node is the sum of its two halves, the left one first; where one of them has no vector, it is the other.
    So the sum of all vectors of a node may stand for them, at any place of the node: whoever adds up parts of the
    tree first comes to the same bits.

    Parameters
    ----------
    out : ndarray, shape (n,), float32
        Written.
    vectors : sequence of ndarray, shape (n,), float32
        At least one.
    places : sequence of int
        Of the vectors: ascending, from 0, below 2**32.
    divisor : float
        Rounded to float32 first; 1 leaves the sum as it is.

    Raises
    ------
    ZeroDivisionError
        If `divisor` is 0 in float32; nothing has been changed.
    ValueError
        If the arrays do not fit each other, or the places do not ascend; nothing has been changed.
    """
    with np.errstate(all="ignore"):
        divisor_32 = np.float32(divisor)
        if divisor_32 == 0:
            raise ZeroDivisionError(
                "divisor is 0 in float32; divide by the number of gradients that were added"
            )
        nodes = dict(zip(places, vectors, strict=True))
        for _ in range(_MAX_HEIGHT):
            above: dict[int, Float32Array] = {}
            for place, node in nodes.items():
                left = above.get(place // 2)
                above[place // 2] = node if left is None else left + node
            nodes = above
        np.divide(nodes[0], divisor_32, out=out)


def apply(
    step: bytes,
    out: Float32Array,
    values: Float32Array,
    slots: Sequence[Float32Array],
    gradient: Float32Array,
) -> None:
    """Take one step of an optimizer from `values` to `out`; the slots change in place.

    `steps_numpy` has the formula of each kind.

    Parameters
    ----------
    step : bytes
        `Step.packed`: the kind and its scalars.
    out : ndarray, shape (n,), float32
        Written; may be `values`.
    values, gradient : ndarray, shape (n,), float32
    slots : sequence of ndarray, shape (n,), float32
        As many as the kind has, in its order; of row-wise Adagrad one of shape (1,).

    Raises
    ------
    ValueError
        If the step is no packed one, or the arrays do not fit it or each other; nothing has been changed.
    """
    out[:] = take_step(step, values, slots, gradient)

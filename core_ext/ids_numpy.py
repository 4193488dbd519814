"""NumPy twins of the kernels on ids: same signatures, same results, many times slower.

They say what each kernel computes and are the measure in its tests.  They do not check their arrays: what
`ids` refuses is undefined here.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edlz.core_ext.memory import Float32Array

__all__ = ["group_ids", "merge_rows", "partition_of", "sum_rows"]

_Ids = npt.NDArray[np.int64]
_Places = npt.NDArray[np.int32]


def partition_of(ids: _Ids, partitions: int) -> _Places:
    """Return which partition owns each id: its hash modulo the number of partitions.

    Parameters
    ----------
    ids : ndarray, shape (n,), int64
        Any numbers; neighbours are as likely to be apart as strangers.
    partitions : int
        From 1 to 2**31 - 1.

    Returns
    -------
    ndarray, shape (n,), int32

    Raises
    ------
    ValueError
        If the number of partitions is out of its range, or the array does not fit.

    References
    ----------
    Steele, Lea, Flood, OOPSLA 2014: the output function of SplitMix64.
    """
    return (_mixed(ids) % np.uint64(partitions)).astype(np.int32)


def group_ids(ids: _Ids, partitions: int) -> tuple[_Ids, _Ids, _Places]:
    """Find the distinct ids and sort them by partition.

    Parameters
    ----------
    ids : ndarray, shape (n,), int64
        Any numbers, at most 2**31 - 1 of them.
    partitions : int
        From 1 to 2**31 - 1.

    Returns
    -------
    unique : ndarray, shape (m,), int64
        The distinct ids: those of partition 0, then of partition 1 and so on, within a partition in the order
        of their first occurrence.
    counts : ndarray, shape (partitions,), int64
        How many of them each partition owns.
    places : ndarray, shape (n,), int32
        Where each id stands in `unique`: ``unique[places]`` is `ids`.

    Raises
    ------
    ValueError
        If the number of partitions is out of its range, there are too many ids or the array does not fit.
    """
    ascending, first_at, inverse = np.unique(ids, return_index=True, return_inverse=True)
    owners = partition_of(ascending, partitions)
    order = np.lexsort((first_at, owners))
    places = np.empty(len(ascending), np.int32)
    places[order] = np.arange(len(ascending), dtype=np.int32)
    counts = np.bincount(owners, minlength=partitions).astype(np.int64)
    return ascending[order], counts, places[inverse.reshape(-1)]


def sum_rows(gradients: Float32Array, places: _Places, rows: int) -> Float32Array:
    """Add up the gradients that belong to the same row.

    Parameters
    ----------
    gradients : ndarray, shape (n, dim), float32
    places : ndarray, shape (n,), int32
        The row of each gradient, in [0, rows).
    rows : int
        At least 0.

    Returns
    -------
    ndarray, shape (rows, dim), float32
        Begun at 0, the gradients added one by one in their order.

    Raises
    ------
    IndexError
        If a place is out of range.
    ValueError
        If `rows` is negative or the arrays do not fit each other.
    """
    sums = np.zeros((rows, gradients.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        np.add.at(sums, places, gradients)
    return sums


def merge_rows(parts: Sequence[tuple[_Ids, Float32Array]], divisor: float) -> tuple[_Ids, Float32Array]:
    """Add up several lists of rows and divide: the mean of the pushes of one synchronous step.

    Parameters
    ----------
    parts : sequence of (ids, gradients), at least one
        ids : ndarray, shape (k,), int64; gradients : ndarray, shape (k, dim), float32, dim the same in all
        parts.  An id that a part has twice counts twice.
    divisor : float
        The number of pushes, also of those without rows; rounded to float32 first.

    Returns
    -------
    ids : ndarray, shape (m,), int64
        The distinct ids of all parts, in the order of their first occurrence.
    gradients : ndarray, shape (m, dim), float32
        Begun at 0, the gradients added one by one in the order of the parts, then divided by `divisor`.

    Raises
    ------
    ZeroDivisionError
        If `divisor` is 0 in float32.
    ValueError
        If there are no parts, or the arrays do not fit each other.
    """
    unique, _, places = group_ids(np.concatenate([ids for ids, _ in parts]), 1)
    sums = sum_rows(np.concatenate([gradients for _, gradients in parts]), places, len(unique))
    with np.errstate(all="ignore"):
        return unique, sums / np.float32(divisor)


def _mixed(ids: _Ids) -> npt.NDArray[np.uint64]:
    """Return the hash of hashing.h: a bijection of the 64-bit numbers."""
    z = ids.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed

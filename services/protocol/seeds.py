"""Numbers that look random and follow from names: orders and seeds that every process agrees on.

NumPy does not promise that `Generator.permutation` stays the same from release to release, so the few
lines that sync training's bits rest on are our own: a splitmix64 finaliser over (seed, names..., i).
"""

import numpy as np
import numpy.typing as npt

__all__ = ["derive_seed", "permutation", "table_seed"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TABLE = 3  # a name for derive_seed; 0 to 2 are orders and steps
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def derive_seed(*names: int) -> int:
    """Return the 64-bit number that these integers stand for, in their order.

    References
    ----------
    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    state = np.zeros(1, np.uint64)
    for name in names:
        state = _mix(state ^ np.uint64(name & 0xFFFFFFFFFFFFFFFF))
    return int(state[0])


def table_seed(seed: int, table: int) -> int:
    """Return what the initial values of a table's rows follow from: the job's seed and the table's place."""
    return derive_seed(seed, _TABLE, table)


def permutation(count: int, *names: int) -> npt.NDArray[np.int64]:
    """Return a permutation of range(count) that follows from these integers alone.

    Returns
    -------
    ndarray, shape (count,), int64
    """
    keys = _mix(np.uint64(derive_seed(*names)) + np.arange(count, dtype=np.uint64) * _GOLDEN)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def _mix(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    keys = keys + _GOLDEN
    keys = (keys ^ (keys >> np.uint64(30))) * _MIX_1
    keys = (keys ^ (keys >> np.uint64(27))) * _MIX_2
    return keys ^ (keys >> np.uint64(31))

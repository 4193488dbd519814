"""Owns the allocation of flat arrays that start on a cache line.

The kernels take any 4-byte aligned array; vectors that start on 64 bytes never straddle two cache lines,
so whatever lives long (parameters, slots, gradient sums) is allocated here.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["ALIGNMENT_BYTES", "Float32Array", "aligned_empty", "aligned_zeros"]

ALIGNMENT_BYTES = 64
"""One x86-64 cache line, and the width of the widest vector register (AVX-512)."""

Float32Array: TypeAlias = npt.NDArray[np.float32]


def aligned_empty(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate a flat array with undefined contents.

    Parameters
    ----------
    count : int
        Number of elements, >= 0.
    dtype : dtype-like
        Type of the elements; it must hold no Python objects.

    Returns
    -------
    ndarray, shape (count,), C-contiguous
        Its first element stands on a multiple of `ALIGNMENT_BYTES`.

    Raises
    ------
    ValueError
        If `count` is negative or `dtype` holds Python objects.
    """
    element, size_bytes = _size_bytes(count, dtype)
    return _aligned_view(np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8), size_bytes, element)


def aligned_zeros(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate a flat array of zeros.

    Parameters
    ----------
    count : int
        Number of elements, >= 0.
    dtype : dtype-like
        Type of the elements; it must hold no Python objects.

    Returns
    -------
    ndarray, shape (count,), C-contiguous
        Its first element stands on a multiple of `ALIGNMENT_BYTES`.

    Raises
    ------
    ValueError
        If `count` is negative or `dtype` holds Python objects.
    """
    element, size_bytes = _size_bytes(count, dtype)
    # np.zeros takes untouched pages from the kernel: a large array costs nothing until it is written.
    return _aligned_view(np.zeros(size_bytes + ALIGNMENT_BYTES, np.uint8), size_bytes, element)


def _size_bytes(count: int, dtype: npt.DTypeLike) -> tuple[np.dtype[Any], int]:
    element = np.dtype(dtype)
    if count < 0:
        raise ValueError(f"count={count} is negative; ask for 0 elements or more")
    if element.hasobject:
        raise ValueError(f"dtype={element} holds Python objects; take a plain number type")
    return element, count * element.itemsize


def _aligned_view(block: npt.NDArray[np.uint8], size_bytes: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    start = -block.ctypes.data % ALIGNMENT_BYTES
    return block[start : start + size_bytes].view(dtype)

"""Buffers that are lent out for sending and not written again while anybody still holds them.

ZeroMQ sends large frames from our memory at some later time.  Instead of asking it when, a buffer is
lent as a read-only array, and the array's death (a weak reference) says that the last reader is gone.
"""

import weakref

import numpy as np
import numpy.typing as npt

from edlz.core_ext.memory import aligned_empty

__all__ = ["LentBuffers"]

Vector = npt.NDArray[np.float32]


class LentBuffers:
    """Equal float32 buffers, used in turn.

    Parameters
    ----------
    size : int
        Elements of each buffer.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._buffers: list[Vector] = []
        self._loans: dict[int, list[weakref.ref[Vector]]] = {}

    def take(self, *keep: Vector) -> Vector:
        """Return a buffer that nobody reads, other than those in `keep`; a new one if need be.

        Returns
        -------
        ndarray, shape (size,), float32, 64-byte aligned, content undefined
        """
        for buffer in self._buffers:
            if not any(buffer is kept for kept in keep) and self.is_free(buffer):
                return buffer
        buffer = aligned_empty(self._size, np.float32)
        self._buffers.append(buffer)
        self._loans[id(buffer)] = []
        return buffer

    def adopt(self, buffer: Vector) -> None:
        """Use another buffer of this size in turn, which nobody else writes or has."""
        self._buffers.append(buffer)
        self._loans[id(buffer)] = []

    def lend(self, buffer: Vector) -> Vector:
        """Return a read-only array over the buffer; while it (or a slice of it) lives, so does the loan."""
        if not self._size:
            return buffer
        # Over a memoryview, not a plain view: NumPy would tie slices of a view to the buffer itself,
        # and the view could die while a slice of it is still being sent.
        loan = np.frombuffer(buffer.data.toreadonly(), np.float32)
        loans = self._loans[id(buffer)]
        loans[:] = [ref for ref in loans if ref() is not None]
        loans.append(weakref.ref(loan))
        return loan

    def is_free(self, buffer: Vector) -> bool:
        loans = self._loans[id(buffer)]
        while loans:
            if loans[-1]() is not None:
                return False
            loans.pop()
        return True

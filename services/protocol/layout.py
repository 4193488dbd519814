"""How a model's variables lie in flat vectors, and which part of a vector a partition owns.

Three vectors: `dense`, the trainable float32 variables; `state`, the non-trainable
float32 variables that a step assigns; `counters`, the integer ones.  Every variable is padded to 16
elements, so that TensorFlow can take a received float32 buffer as it is.
"""

import hashlib
import math
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["ALIGNMENT", "Layout", "Variable", "VectorLayout", "slice_bounds"]

ALIGNMENT = 16  # elements; 64 bytes of float32


class Variable(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A variable's place: `path` is for people, its index in the layout is its identity."""

    path: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def padded_size(self) -> int:
        return -(-self.size // ALIGNMENT) * ALIGNMENT


class VectorLayout(msgspec.Struct, frozen=True, kw_only=True, array_like=True, dict=True):
    """Variables one after another in a flat vector, each padded to 16 elements."""

    variables: tuple[Variable, ...] = ()

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """First element of each variable, and behind them the length of the vector."""
        return (0, *np.cumsum([v.padded_size for v in self.variables], dtype=int).tolist())

    @property
    def size(self) -> int:
        """Length of the vector in elements, padding included."""
        return self.offsets[-1]

    @property
    def element_count(self) -> int:
        """Elements of the variables themselves, without padding."""
        return sum(v.size for v in self.variables)

    def unpadded(
        self, vector: npt.NDArray[np.generic], start: int, first: int, count: int
    ) -> tuple[npt.NDArray[np.generic], int]:
        """Return some of the elements that belong to variables, of a piece of the vector that begins at `start`.

        Parameters
        ----------
        first, count : int
            Which of them; fewer if there are no more.

        Returns
        -------
        elements : ndarray
        total : int
            How many there are in the piece.
        """
        found, total = [vector[:0]], 0
        for variable, offset in zip(self.variables, self.offsets, strict=False):
            lo, hi = max(offset - start, 0), min(offset + variable.size - start, len(vector))
            if hi <= lo:
                continue
            begin, end = max(first - total, 0), min(first + count - total, hi - lo)
            if begin < end:
                found.append(vector[lo + begin : lo + end])
            total += hi - lo
        return np.concatenate(found), total


class Layout(msgspec.Struct, frozen=True, kw_only=True, array_like=True, dict=True):
    """The three vectors of a model."""

    dense: VectorLayout = VectorLayout()
    state: VectorLayout = VectorLayout()
    counters: VectorLayout = VectorLayout()

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()


def slice_bounds(size: int, partition: int, count: int) -> tuple[int, int]:
    """Return the half-open range of a vector that one of `count` partitions owns.

    The slices are contiguous, near-equal and start at multiples of 16 elements.
    """
    blocks = -(-size // ALIGNMENT)
    lo, hi = partition * blocks // count, (partition + 1) * blocks // count
    return min(lo * ALIGNMENT, size), min(hi * ALIGNMENT, size)

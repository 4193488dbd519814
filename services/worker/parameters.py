"""From the partitions' slices to whole vectors that the model loads, and from a gradient to slices."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from edlz.core_ext.memory import aligned_zeros
from edlz.services.parameters.dense_optimizer import DenseOptimizer
from edlz.services.protocol.layout import Layout, slice_bounds
from edlz.services.protocol.messages import Exchanged, OptimizerSpec

__all__ = ["Parameters", "slice_of"]

Vector = npt.NDArray[np.float32]
Counters = npt.NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)


class Parameters:
    """Whole vectors, assembled in two buffers in turn: TensorFlow reads the one that it was given last.

    Parameters
    ----------
    layout : Layout
    partitions : int
    local : OptimizerSpec, optional
        What `step` moves the vectors with.
    is_alone : bool
        Whether the engine is loaded with nothing else; else it is loaded anew each time.
    """

    def __init__(
        self, layout: Layout, partitions: int, local: OptimizerSpec | None = None, *, is_alone: bool = True
    ) -> None:
        sizes = (layout.dense.size, layout.state.size, layout.counters.size)
        self._bounds = [[slice_bounds(size, p, partitions) for p in range(partitions)] for size in sizes]
        self._buffers = [
            (
                aligned_zeros(sizes[0], np.float32),
                aligned_zeros(sizes[1], np.float32),
                aligned_zeros(sizes[2], np.int64),
            )
            for _ in range(2)
        ]
        self._loaded: tuple[tuple[tuple[int, int], int], ...] | None = None
        self._turn, self._is_alone = 0, is_alone
        self._optimizer = DenseOptimizer(local, layout.dense, 0, sizes[0]) if local else None
        self._iteration = 0

    def assemble(self, parts: tuple[Exchanged, ...]) -> tuple[Vector, Vector, Counters] | None:
        """Join the partitions' slices; None when the engine stands at these versions.

        Returns
        -------
        dense, state : ndarray, float32, 64-byte aligned, padded as the layout says
        counters : ndarray, int64
            Written again only by the call after the next.
        """
        key = tuple((part.incarnation, part.version) for part in parts)
        if key == self._loaded:
            return None if self._is_alone else self._buffers[self._turn]
        self._turn = 1 - self._turn
        vectors = self._buffers[self._turn]
        for p, part in enumerate(parts):
            assert part.dense is not None, "a part without values"
            assert part.state is not None
            assert part.counters is not None
            _place(vectors[0], self._bounds[0][p], part.dense)
            _place(vectors[1], self._bounds[1][p], part.state)
            _place(vectors[2], self._bounds[2][p], part.counters)
        self._loaded = key
        return vectors

    def step(self, gradient: Vector, learning_rate: float) -> tuple[Vector, Vector, Counters]:
        """Move the vectors by this worker's own gradient, until others are assembled.

        Returns
        -------
        dense, state, counters : as `assemble`
            State and counters as they were.
        """
        assert self._optimizer is not None, "there is no local optimizer"
        dense, state, counters = self._buffers[self._turn]
        self._turn = 1 - self._turn
        out, others = self._buffers[self._turn][0], self._buffers[self._turn][1:]
        steps = self._optimizer.steps(learning_rate, self._iteration)
        self._optimizer.apply(steps, out, dense, gradient)
        others[0][:], others[1][:] = state, counters
        self._iteration += 1
        return out, *others


def slice_of(vector: npt.NDArray[Scalar], partition: int, partitions: int) -> npt.NDArray[Scalar]:
    """Return the part of a whole vector that a partition owns."""
    lo, hi = slice_bounds(len(vector), partition, partitions)
    return vector[lo:hi]


def _place(vector: npt.NDArray[Scalar], bounds: tuple[int, int], values: npt.NDArray[Scalar]) -> None:
    vector[bounds[0] : bounds[1]] = values

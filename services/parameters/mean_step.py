"""A synchronous step whose sums others have made, and the values that it leads to.

Theory of operation.  Working them out takes as long as the model is large, so it is a piece of work by itself, for a
thread perhaps: a `Store` prepares it, somebody runs it, and then the store takes the step, which changes ledger and version at once.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.parameters.dense_optimizer import DenseOptimizer
from edlz.services.parameters.lent_buffers import LentBuffers

__all__ = ["MeanStep", "NextValues"]

Vector = npt.NDArray[np.float32]
Counters = npt.NDArray[np.int64]


class MeanStep(msgspec.Struct, frozen=True, kw_only=True):
    """A synchronous step whose sums others have made: the mean of its gradients and states.

    `minibatches`: (task, index, is last, is empty, loss) of its slots, in their order.  The mean gradient lies in parts,
    one after another; there are none if all slots were empty.
    """

    minibatches: tuple[tuple[int, int, bool, bool, float | None], ...]
    learning_rate: float
    gradient: tuple[Vector, ...] = ()
    state: Vector | None = None
    counters: Counters | None = None


class NextValues:
    """The dense values behind a step; `run` works them out, once.

    They are written over those before, unless somebody holds these, and the optimizer's slots change in place: until the
    store has taken the step nobody reads either.

    Parameters
    ----------
    step : MeanStep
    optimizer : DenseOptimizer
    steps : sequence of bytes
        Of `DenseOptimizer.steps`.
    buffers : LentBuffers
        That `before` is one of.
    before : ndarray, shape (n,), float32

    Attributes
    ----------
    dense : ndarray, shape (n,), float32
        When `run` has returned.
    """

    def __init__(
        self,
        step: MeanStep,
        optimizer: DenseOptimizer,
        steps: Sequence[bytes],
        buffers: LentBuffers,
        before: Vector,
    ) -> None:
        self.step, self.dense = step, before
        self._optimizer, self._steps, self._buffers = optimizer, steps, buffers

    @property
    def size(self) -> int:
        """Elements that are worked out."""
        return len(self.dense) if self.step.gradient else 0

    def run(self) -> None:
        """Work them out."""
        if self.step.gradient:
            before = self.dense
            out = before if self._buffers.is_free(before) else self._buffers.take(before)
            self._optimizer.apply_in_parts(self._steps, out, before, self.step.gradient)
            self.dense = out

"""The optimizer of a model's dense values: weight decay may leave some of its variables alone.

The partitions have one for their slices, and a worker that moves its own copy of the vectors has one for all.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from edlz.core_ext.dense import apply
from edlz.core_ext.optimizers import make_optimizer
from edlz.services.protocol.layout import VectorLayout
from edlz.services.protocol.messages import OptimizerSpec

__all__ = ["DenseOptimizer"]

Vector = npt.NDArray[np.float32]


class DenseOptimizer:
    """Steps over a range of the dense vector, piece by piece: variables that decay, and others.

    Parameters
    ----------
    spec : OptimizerSpec
    layout : VectorLayout
        Of the whole vector.
    lo, hi : int
        The range [lo, hi) of it.
    slots : dict of str to ndarray, shape (hi - lo,), float32, optional
        Changed in place; those before the first step unless they are given.

    Attributes
    ----------
    slots : dict of str to ndarray
    counts_steps : bool
        Whether a step depends on how many were taken before.

    Raises
    ------
    ValueError
        If there is no such optimizer, or a setting is unknown or out of its range.
    """

    def __init__(
        self,
        spec: OptimizerSpec,
        layout: VectorLayout,
        lo: int,
        hi: int,
        slots: dict[str, Vector] | None = None,
    ) -> None:
        decayed = undecayed = make_optimizer(spec.name, spec.settings)
        pieces = _pieces(layout, spec.undecayed, lo, hi)
        if not all(is_decayed for _, _, is_decayed in pieces):
            undecayed = make_optimizer(spec.name, {**spec.settings, "weight_decay": 0.0})
        self.slots = decayed.initial_slots(hi - lo) if slots is None else slots
        self.counts_steps = decayed.counts_steps
        self._pieces = [  # bounds, slots and optimizer of each
            (
                begin,
                end,
                [self.slots[name][begin:end] for name in decayed.slots],
                decayed if is_decayed else undecayed,
            )
            for begin, end, is_decayed in pieces
        ]

    def steps(self, learning_rate: float, iteration: int) -> list[bytes]:
        """Return what `apply` takes, for the step after so many.

        Raises
        ------
        ValueError
            If the optimizer takes no such learning rate.
        """
        return [optimizer.packed_step(learning_rate, iteration) for _, _, _, optimizer in self._pieces]

    def apply(self, steps: Sequence[bytes], out: Vector, values: Vector, gradient: Vector) -> None:
        """Take one step from `values` to `out`, which may be the same; the slots change in place.

        Parameters
        ----------
        steps : sequence of bytes
            Of `steps`.
        out, values, gradient : ndarray, shape (hi - lo,), float32
        """
        if len(self._pieces) == 1:
            apply(steps[0], out, values, self._pieces[0][2], gradient)
            return
        for (lo, hi, slots, _), step in zip(self._pieces, steps, strict=True):
            apply(step, out[lo:hi], values[lo:hi], slots, gradient[lo:hi])

    def apply_in_parts(
        self, steps: Sequence[bytes], out: Vector, values: Vector, parts: Sequence[Vector]
    ) -> None:
        """Take one step like `apply`, by a gradient that lies in parts, one after another.

        Parameters
        ----------
        parts : sequence of ndarray, float32
            Of hi - lo elements together.
        """
        if len(parts) == 1:
            self.apply(steps, out, values, parts[0])
            return
        first = 0
        for part in parts:
            behind = first + len(part)
            for (lo, hi, slots, _), step in zip(self._pieces, steps, strict=True):
                begin, end = max(lo, first), min(hi, behind)
                if begin < end:
                    own = [slot[begin - lo : end - lo] for slot in slots]
                    inside = part[begin - first : end - first]
                    apply(step, out[begin:end], values[begin:end], own, inside)
            first = behind


def _pieces(
    layout: VectorLayout, undecayed: Collection[int], lo: int, hi: int
) -> list[tuple[int, int, bool]]:
    """Return the pieces of [lo, hi) of a vector with and without weight decay, as few as possible.

    Parameters
    ----------
    undecayed : collection of int
        Places of the variables that weight decay leaves alone.

    Returns
    -------
    list of (begin, end, is_decayed)
        Counted from `lo`; one piece if the range is empty.
    """
    found: list[tuple[int, int, bool]] = []
    for place, (begin, end) in enumerate(pairwise(layout.offsets)):
        begin, end = max(begin, lo) - lo, min(end, hi) - lo
        is_decayed = place not in undecayed
        if begin >= end:
            continue
        if found and found[-1][2] == is_decayed:
            begin = found.pop()[0]
        found.append((begin, end, is_decayed))
    return found or [(0, hi - lo, True)]

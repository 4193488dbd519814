"""Clipping of gradients, which needs whole variables: so workers do it, each to its own minibatch's gradient.

Keras clips the gradient that it applies.  Where a step is the mean of several gradients this is the mean of
clipped ones instead.  A table counts as one variable, whose gradient is that of the rows in the minibatch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.core_ext import dense
from edlz.core_ext.memory import aligned_empty
from edlz.services.protocol.layout import VectorLayout

__all__ = ["Clip", "GradientClipping"]

Vector = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Clip:
    """How an optimizer clips; at most one is set, or none.

    Attributes
    ----------
    value : float or None
        Each element to [-value, value].
    norm : float or None
        Each variable to this norm.
    global_norm : float or None
        All variables together to this norm.
    """

    value: float | None = None
    norm: float | None = None
    global_norm: float | None = None

    @classmethod
    def of(cls, optimizer: Any) -> "Clip":
        """Return that of a Keras optimizer."""
        return cls(optimizer.clipvalue, optimizer.clipnorm, optimizer.global_clipnorm)

    @property
    def is_set(self) -> bool:
        return self != Clip()


class GradientClipping:
    """Clips the gradients of a model.

    Parameters
    ----------
    layout : VectorLayout
        Of the dense vector.
    clip : Clip
        Of the model's optimizer.
    table_clips : sequence of Clip or None
        Of each table's own optimizer; None for one that has the model's.
    """

    def __init__(self, layout: VectorLayout, clip: Clip, table_clips: Sequence[Clip | None] = ()) -> None:
        self._layout, self._clip, self._table_clips = layout, clip, tuple(table_clips)

    @property
    def is_set(self) -> bool:
        """Whether anything is clipped at all."""
        return any(clip is not None and clip.is_set for clip in (self._clip, *self._table_clips))

    def __call__(self, gradient: Vector, rows: Sequence[Vector], ids: Sequence[Ids]) -> Vector:
        """Clip; the rows in place, of the dense vector a copy, which is returned.

        Parameters
        ----------
        gradient : ndarray, shape (layout.size,), float32
        rows : sequence of ndarray, shape (m, dim), float32
            Gradients of the rows of each table.
        ids : sequence of ndarray, shape (m,), int64
            Their ids, none twice in a table.
        """
        if not self.is_set:
            return gradient
        copy = aligned_empty(gradient.size, np.float32)
        copy[:] = gradient
        variables = [
            _Part(copy[start : start + place.padded_size])
            for place, start in zip(self._layout.variables, self._layout.offsets, strict=False)
        ]
        for of_table, of_ids, own in zip(rows, ids, self._table_clips, strict=True):
            part = _Part(of_table.reshape(-1), of_ids)
            if own is None:
                variables.append(part)
            else:
                _apply(own, [part])
        _apply(self._clip, variables)
        return copy


class _Part:
    """The gradient of one variable, to be changed in place."""

    def __init__(self, values: Vector, ids: Ids | None = None) -> None:
        self.values, self._ids = values, ids

    def squared_norm(self) -> float:
        """The same bits whatever order the rows are in, for that depends on the number of partitions."""
        if self._ids is None or not len(self._ids):
            return dense.squared_norm(self.values)
        rows = self.values.reshape(len(self._ids), -1)[np.argsort(self._ids)]
        return dense.squared_norm(rows.reshape(-1))


def _apply(clip: Clip, parts: Sequence[_Part]) -> None:
    if clip.value is not None:
        for part in parts:
            dense.clip(part.values, clip.value)
    elif clip.norm is not None:
        for part in parts:
            _scale([part], clip.norm / max(math.sqrt(part.squared_norm()), clip.norm))
    elif clip.global_norm is not None:
        norm = math.sqrt(math.fsum(part.squared_norm() for part in parts))
        # Keras spoils all gradients where one is not finite, so that it is noticed.
        factor = clip.global_norm / max(norm, clip.global_norm) if math.isfinite(norm) else math.nan
        _scale(parts, factor)


def _scale(parts: Sequence[_Part], factor: float) -> None:
    if factor != 1.0:
        for part in parts:
            dense.scale(part.values, factor)

"""Owns the form in which the scalars of one optimizer step reach the compiled kernels.

steps.h declares the same 64 bytes and says what each place holds; `steps_numpy` computes the steps in NumPy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

import numpy as np

__all__ = ["STEP_BYTES", "Kind", "RowSlot", "Step", "pack_step"]

STEP_BYTES = 64
"""Size of a packed step: int32 kind, float32 decay, 14 float32 scalars."""

_MAX_SCALARS = 14
_FORM = Struct(f"<i{1 + _MAX_SCALARS}f")
_UNUSED = (0.0,) * _MAX_SCALARS


class Kind(IntEnum):
    """Which loop a step runs; the numbers are those of `enum edlz_kind` in steps.h."""

    SGD = 0
    MOMENTUM = 1
    NESTEROV = 2
    ADAM = 3
    AMSGRAD = 4
    ADAGRAD = 5
    ROWWISE_ADAGRAD = 6
    RMSPROP = 7
    RMSPROP_MOMENTUM = 8
    RMSPROP_CENTERED = 9
    RMSPROP_CENTERED_MOMENTUM = 10
    ADADELTA = 11
    ADAMAX = 12
    NADAM = 13
    FTRL = 14
    LION = 15


@dataclass(frozen=True, kw_only=True)
class RowSlot:
    """A slot that each row of an embedding table has.

    Parameters
    ----------
    name : str
    size : int
        float32 elements a row: the row's dimension, or 1.
    initial : float
        What they hold before the first step.
    """

    name: str
    size: int
    initial: float


@dataclass(frozen=True, kw_only=True)
class Step:
    """The scalars of one step, the same for all elements.

    Parameters
    ----------
    kind : Kind
    decay : float
        Weight decay; 0 for none.
    scalars : sequence of float, at most 14
        The learning rate and what follows it for this kind in steps.h.

    Attributes
    ----------
    packed : bytes
        What the kernels take: all of it, rounded to float32.
    """

    kind: Kind
    decay: float
    scalars: Sequence[float]

    @property
    def packed(self) -> bytes:
        return pack_step(self.kind, self.decay, self.scalars)

    @classmethod
    def unpack(cls, packed: bytes) -> "Step":
        """Return the step that `packed` holds; places without use come back as 0.

        Raises
        ------
        ValueError
            If there are not 64 bytes, or no such kind.
        """
        if len(packed) != STEP_BYTES:
            raise ValueError(f"step has {len(packed)} bytes, not {STEP_BYTES}; take those of Step.packed")
        places = np.frombuffer(packed, np.float32, offset=4)
        kind = Kind(int.from_bytes(packed[:4], "little", signed=True))
        return cls(kind=kind, decay=float(places[0]), scalars=tuple(float(place) for place in places[1:]))


def pack_step(kind: Kind, decay: float, scalars: Sequence[float]) -> bytes:
    """Return `Step.packed` without making a `Step`."""
    places = (decay, *scalars, *_UNUSED[len(scalars) :])
    try:
        return _FORM.pack(kind, *places)
    except OverflowError:  # a scalar that only float64 can hold becomes infinite, as in Keras
        with np.errstate(over="ignore"):
            return _FORM.pack(kind, *map(np.float32, places))

"""What all optimizers have in common: settings, slots, weight decay and the way from a step to the kernels.

The loops are in `dense` and in the embedding tables.  The learning rate and the iteration come with each call,
so an optimizer holds no state: slots belong to the caller.  Scalars are rounded to float32 where Keras 3 rounds
them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from edlz.core_ext import dense
from edlz.core_ext.memory import Float32Array, aligned_empty
from edlz.core_ext.optimizers.checks import is_finite_in_float32, require_not_negative
from edlz.core_ext.optimizers.scalars import round_32
from edlz.core_ext.steps import Kind, RowSlot, Step, pack_step

__all__ = ["Optimizer"]

_NO_STEP = (None, b"")


@dataclass(frozen=True, kw_only=True)
class Optimizer(ABC):
    """Base of the optimizers; the fields of a subclass are its settings.

    Parameters
    ----------
    weight_decay : float, default 0
        Before each step values shrink by ``values * weight_decay * learning_rate``; a row of an embedding
        table only in the steps that touch it.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    """

    weight_decay: float = 0.0

    name: ClassVar[str]
    counts_steps: ClassVar[bool] = False
    """Whether the scalars of a step depend on how many steps were taken before."""

    def __post_init__(self) -> None:
        require_not_negative("weight_decay", self.weight_decay)
        object.__setattr__(self, "_newest", _NO_STEP)

    @property
    def settings(self) -> dict[str, float | bool]:
        """All settings by name, without the learning rate, as `make_optimizer` takes them."""
        return asdict(self)

    @property
    @abstractmethod
    def slots(self) -> tuple[str, ...]:
        """Names of the slots, in the order of the kernels."""

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """Which loop a step over dense values runs."""

    @property
    def row_kind(self) -> Kind:
        """Which loop a step over a row runs."""
        return self.kind

    def initial_slots(self, count: int) -> dict[str, Float32Array]:
        """Return the slots before the first step of dense values, each float32 of shape (count,)."""
        slots: dict[str, Float32Array] = {}
        for name in self.slots:
            slots[name] = aligned_empty(count, np.float32)
            slots[name].fill(self._initial(name))
        return slots

    def row_slots(self, dim: int) -> tuple[RowSlot, ...]:
        """Return the slots of a row of an embedding table with `dim` values, in the order of the kernels."""
        return tuple(RowSlot(name=name, size=dim, initial=self._initial(name)) for name in self.slots)

    def step(self, learning_rate: float, iteration: int) -> Step:
        """Return the scalars of one step over rows of embedding tables.

        Parameters
        ----------
        learning_rate : float
            Of this step; finite in float32.
        iteration : int
            Number of steps taken before, >= 0.

        Raises
        ------
        ValueError
            If the learning rate is not finite or the iteration is negative.
        """
        scalars = self._checked_scalars(learning_rate, iteration)
        return Step(kind=self.row_kind, decay=self.weight_decay, scalars=scalars)

    def packed_row_step(self, learning_rate: float, iteration: int) -> bytes:
        """Return what the embedding tables take of `step`; costs next to nothing if it is asked for again."""
        return self._packed(self.row_kind, learning_rate, iteration)

    def packed_step(self, learning_rate: float, iteration: int) -> bytes:
        """Return what `dense.apply` takes of a step over dense values; see `packed_row_step`."""
        return self._packed(self.kind, learning_rate, iteration)

    def apply(
        self,
        out: Float32Array,
        values: Float32Array,
        slots: Mapping[str, Float32Array],
        gradient: Float32Array,
        learning_rate: float,
        iteration: int,
    ) -> None:
        """Take one step of dense values from `values` to `out`; the slots change in place.

        Parameters
        ----------
        out : ndarray, shape (n,), float32
            Written; may be `values`.
        values, gradient : ndarray, shape (n,), float32
        slots : mapping of str to ndarray, shape (n,), float32
            One array for each name in `slots`.
        learning_rate : float
            Of this step; finite in float32.
        iteration : int
            Number of steps taken before, >= 0.

        Raises
        ------
        KeyError
            If a slot is missing; nothing has been changed.
        ValueError
            If the learning rate is not finite, the iteration is negative or the arrays do not fit each
            other; nothing has been changed.
        """
        step = self.packed_step(learning_rate, iteration)
        dense.apply(step, out, values, [slots[name] for name in self.slots], gradient)

    def _packed(self, kind: Kind, learning_rate: float, iteration: int) -> bytes:
        asked = (kind, learning_rate, iteration if self.counts_steps else min(iteration, 0))
        newest: tuple[object, bytes] = self._newest  # type: ignore[attr-defined]
        if newest[0] == asked and learning_rate:  # 0 equals -0, of other bits
            return newest[1]
        packed = pack_step(kind, self.weight_decay, self._checked_scalars(learning_rate, iteration))
        object.__setattr__(self, "_newest", (asked, packed))
        return packed

    def _checked_scalars(self, learning_rate: float, iteration: int) -> Sequence[float]:
        if not is_finite_in_float32(learning_rate):
            raise ValueError(f"learning_rate={learning_rate} is not finite in float32; check the schedule")
        if iteration < 0:
            raise ValueError(f"iteration={iteration} is negative; the first step has iteration 0")
        rate = round_32(learning_rate)
        return (rate, *self._scalars(rate, iteration + 1))

    @abstractmethod
    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        """Return the scalars of step number t, from 1, that follow the learning rate in steps.h."""

    def _initial(self, slot: str) -> float:
        return 0.0

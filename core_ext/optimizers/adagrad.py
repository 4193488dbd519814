"""Optimizers that add up squared gradients for ever: Adagrad, its form for rows, and Ftrl."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import ClassVar

from edlz.core_ext.optimizers.base import Optimizer
from edlz.core_ext.optimizers.checks import require_not_negative, require_number, require_positive
from edlz.core_ext.optimizers.scalars import round_32
from edlz.core_ext.steps import Kind, RowSlot

__all__ = ["Adagrad", "Ftrl", "RowwiseAdagrad"]


@dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    """Steps that shrink with the sum of an element's squared gradients.

    ``accumulator += gradient**2``, ``value -= lr * gradient / sqrt(accumulator + epsilon)``.

    Parameters
    ----------
    initial_accumulator_value : float, default 0.1
        What the sums start at, >= 0.
    epsilon : float, default 1e-7
        Added under the root, > 0, also in float32.
    weight_decay : float, default 0
        See `Optimizer`.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    Duchi, Hazan, Singer, JMLR 12 (2011), diagonal Adagrad.
    """

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    name: ClassVar[str] = "Adagrad"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("initial_accumulator_value", self.initial_accumulator_value)
        require_positive("epsilon", self.epsilon, "1e-7")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("accumulator",)

    @property
    def kind(self) -> Kind:
        return Kind.ADAGRAD

    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        return (self.epsilon,)

    def _initial(self, slot: str) -> float:
        return self.initial_accumulator_value


@dataclass(frozen=True, kw_only=True)
class RowwiseAdagrad(Adagrad):
    """Adagrad with one sum for a whole row of an embedding table, which saves its memory.

    The mean of the squares of the row's gradient is added to the sum; the squares are added up in the order of
    the elements.  Dense values have no rows: for them it is `Adagrad`.  Keras has no such optimizer.

    Parameters
    ----------
    initial_accumulator_value, epsilon, weight_decay : float
        See `Adagrad`.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    """

    name: ClassVar[str] = "RowwiseAdagrad"

    @property
    def row_kind(self) -> Kind:
        return Kind.ROWWISE_ADAGRAD

    def row_slots(self, dim: int) -> tuple[RowSlot, ...]:
        return tuple(RowSlot(name=name, size=1, initial=self._initial(name)) for name in self.slots)


@dataclass(frozen=True, kw_only=True)
class Ftrl(Optimizer):
    """Follow the regularized leader, with Adagrad's rates.

    With ``sum = accumulator + gradient**2`` and ``l2' = l2 + beta / (2 * lr)``:
    ``linear += gradient + 2 * l2_shrinkage * value - (sqrt(sum) - sqrt(accumulator)) / lr * value``,
    ``value = (clip(linear, -l1, l1) - linear) / (sqrt(sum) / lr + 2 * l2')``, ``accumulator = sum``.

    Parameters
    ----------
    learning_rate_power : float, default -0.5
        Nothing else: another power would give other bits on another machine.
    initial_accumulator_value : float, default 0.1
        What the sums start at, >= 0; > 0 if neither `beta` nor l2 regularization keeps 0 from the denominator.
    l1_regularization_strength, l2_regularization_strength : float, default 0
        >= 0.
    l2_shrinkage_regularization_strength : float, default 0
        >= 0; acts on the gradient, not on the sums.
    beta : float, default 0
        >= 0.
    weight_decay : float, default 0
        See `Optimizer`.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    McMahan et al., KDD 2013, algorithm 1, in the form of Keras' Ftrl.
    """

    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    l2_shrinkage_regularization_strength: float = 0.0
    beta: float = 0.0

    name: ClassVar[str] = "Ftrl"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("learning_rate_power", self.learning_rate_power)
        if self.learning_rate_power != -0.5:
            raise ValueError(
                f"learning_rate_power={self.learning_rate_power} is not supported; leave it at -0.5"
            )
        for setting in (
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
            "l2_shrinkage_regularization_strength",
            "beta",
        ):
            require_not_negative(setting, getattr(self, setting))
        if not (self.initial_accumulator_value or self.l2_regularization_strength or self.beta):
            raise ValueError(
                f"initial_accumulator_value={self.initial_accumulator_value} divides by 0 where a gradient is 0; "
                f"0.1 is usual"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        return ("accumulator", "linear")

    @property
    def kind(self) -> Kind:
        return Kind.FTRL

    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        l2 = self._l2(learning_rate) if learning_rate > 0 else inf
        if not isfinite(l2):
            raise ValueError(
                f"learning_rate={learning_rate} divides in Ftrl and is too small for that; "
                f"give a schedule that stays above 0"
            )
        shrinkage = 2 * self.l2_shrinkage_regularization_strength
        return self.l1_regularization_strength, 2 * l2, shrinkage

    def _l2(self, learning_rate: float) -> float:
        """Return l2' for a rate above 0; infinity if that is too small to divide by."""
        from_beta = round_32(round_32(self.beta) / round_32(2 * learning_rate))
        return round_32(round_32(self.l2_regularization_strength) + from_beta)

    def _initial(self, slot: str) -> float:
        return self.initial_accumulator_value if slot == "accumulator" else 0.0

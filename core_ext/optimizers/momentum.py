"""Optimizers that step along a running mean of the gradients or its sign: SGD and Lion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edlz.core_ext.optimizers.base import Optimizer
from edlz.core_ext.optimizers.checks import require_bool, require_fraction
from edlz.core_ext.optimizers.scalars import round_32
from edlz.core_ext.steps import Kind

__all__ = ["SGD", "Lion"]


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Gradient descent, with momentum if that is not 0.

    Without: ``value -= lr * gradient``.  With: ``slot = momentum * slot - lr * gradient``, then
    ``value += slot``, or with `nesterov` ``value += momentum * slot - lr * gradient`` with the new slot.

    Parameters
    ----------
    momentum : float, default 0
        In [0, 1].
    nesterov : bool, default False
        Whether a step with momentum looks ahead.
    weight_decay : float, default 0
        See `Optimizer`.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    Sutskever, Martens, Dahl, Hinton, ICML 2013, equations 1 to 4, in the form of Keras' SGD.
    """

    momentum: float = 0.0
    nesterov: bool = False

    name: ClassVar[str] = "SGD"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction("momentum", self.momentum, "0.9")
        require_bool("nesterov", self.nesterov)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    @property
    def kind(self) -> Kind:
        if not self.momentum:
            return Kind.SGD
        return Kind.NESTEROV if self.nesterov else Kind.MOMENTUM

    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        return (self.momentum,) if self.momentum else ()


@dataclass(frozen=True, kw_only=True)
class Lion(Optimizer):
    """Steps of one size, along the sign of a mean of the gradients.

    ``value -= lr * sign(beta_1 * m + (1 - beta_1) * gradient)``, then
    ``m = beta_2 * m + (1 - beta_2) * gradient``.

    Parameters
    ----------
    beta_1 : float, default 0.9
        Share of the mean in the step, in (0, 1].
    beta_2 : float, default 0.99
        Decay rate of the mean, in [0, 1].
    weight_decay : float, default 0
        See `Optimizer`.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    Chen et al., NeurIPS 2023, algorithm 2.
    """

    beta_1: float = 0.9
    beta_2: float = 0.99

    name: ClassVar[str] = "Lion"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction("beta_1", self.beta_1, "0.9")
        require_fraction("beta_2", self.beta_2, "0.99")
        if self.beta_1 == 0:
            raise ValueError("beta_1=0 leaves only the sign of the gradient; 0.9 is usual")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("m",)

    @property
    def kind(self) -> Kind:
        return Kind.LION

    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        beta_1, beta_2 = round_32(self.beta_1), round_32(self.beta_2)
        return beta_1, 1.0 - beta_1, beta_2, 1.0 - beta_2

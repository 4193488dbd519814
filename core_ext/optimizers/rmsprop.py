"""Optimizers that divide by a running root mean square of the gradients: RMSprop and Adadelta."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edlz.core_ext.optimizers.base import Optimizer
from edlz.core_ext.optimizers.checks import (
    require_bool,
    require_decay_rate,
    require_fraction,
    require_positive,
)
from edlz.core_ext.steps import Kind

__all__ = ["Adadelta", "RMSprop"]

_RMSPROP_KINDS = {
    (False, False): Kind.RMSPROP,
    (False, True): Kind.RMSPROP_MOMENTUM,
    (True, False): Kind.RMSPROP_CENTERED,
    (True, True): Kind.RMSPROP_CENTERED_MOMENTUM,
}


@dataclass(frozen=True, kw_only=True)
class RMSprop(Optimizer):
    """Steps divided by the root of a running mean of the squared gradients.

    ``velocity = rho * velocity + (1 - rho) * gradient**2``,
    ``value -= lr * gradient / sqrt(velocity + epsilon)``.

    Parameters
    ----------
    rho : float, default 0.9
        Decay rate of the mean, in [0, 1), also in float32.
    momentum : float, default 0
        In [0, 1]; if it is not 0, steps are ``momentum * last step + this step``.
    epsilon : float, default 1e-7
        Added under the root, > 0, also in float32.
    centered : bool, default False
        Whether the square of a running mean of the gradients is taken off `velocity` under the root.
    weight_decay : float, default 0
        See `Optimizer`.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    Hinton, Srivastava, Swersky, Coursera course on neural networks, 2012, lecture 6e; centered: Graves,
    arXiv 1308.0850, section 4.2.
    """

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False

    name: ClassVar[str] = "RMSprop"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_decay_rate("rho", self.rho)
        require_fraction("momentum", self.momentum, "0.9")
        require_positive("epsilon", self.epsilon, "1e-7")
        require_bool("centered", self.centered)

    @property
    def slots(self) -> tuple[str, ...]:
        average = ("average_gradient",) if self.centered else ()
        return ("velocity", *average, *(("momentum",) if self.momentum else ()))

    @property
    def kind(self) -> Kind:
        return _RMSPROP_KINDS[self.centered, bool(self.momentum)]

    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        return self.rho, 1.0 - self.rho, self.epsilon, self.momentum


@dataclass(frozen=True, kw_only=True)
class Adadelta(Optimizer):
    """Steps as large as a running root mean square of the steps before.

    ``accumulated_grad = rho * accumulated_grad + (1 - rho) * gradient**2``,
    ``move = -sqrt(accumulated_delta_var + epsilon) * gradient / sqrt(accumulated_grad + epsilon)``,
    ``accumulated_delta_var = rho * accumulated_delta_var + (1 - rho) * move**2``, ``value += lr * move``.

    Parameters
    ----------
    rho : float, default 0.95
        Decay rate of the means, in [0, 1), also in float32.
    epsilon : float, default 1e-7
        Added under the roots, > 0, also in float32.
    weight_decay : float, default 0
        See `Optimizer`.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    Zeiler, arXiv 1212.5701, algorithm 1.
    """

    rho: float = 0.95
    epsilon: float = 1e-7

    name: ClassVar[str] = "Adadelta"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_decay_rate("rho", self.rho)
        require_positive("epsilon", self.epsilon, "1e-7")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("accumulated_grad", "accumulated_delta_var")

    @property
    def kind(self) -> Kind:
        return Kind.ADADELTA

    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        return self.rho, 1.0 - self.rho, self.epsilon

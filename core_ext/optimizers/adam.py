"""The family of Adam: running means of the gradient and of its size, corrected for their zero start."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from edlz.core_ext.optimizers.base import Optimizer
from edlz.core_ext.optimizers.checks import require_bool, require_decay_rate, require_positive
from edlz.core_ext.optimizers.scalars import momentum_product, power_32, round_32, warming_momentum
from edlz.core_ext.steps import Kind

__all__ = ["Adam", "AdamW", "Adamax", "Nadam"]


@dataclass(frozen=True, kw_only=True)
class _Moments(Optimizer):
    """Settings of the whole family."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    counts_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_decay_rate("beta_1", self.beta_1)
        require_decay_rate("beta_2", self.beta_2)
        require_positive("epsilon", self.epsilon, "1e-7")


@dataclass(frozen=True, kw_only=True)
class Adam(_Moments):
    """Adam, with the correction for the zero start folded into the learning rate.

    ``m += (1 - beta_1) * (gradient - m)``, ``v += (1 - beta_2) * (gradient**2 - v)``,
    ``value -= alpha * m / (sqrt(v) + epsilon)`` with
    ``alpha = lr * sqrt(1 - beta_2**t) / (1 - beta_1**t)``.

    Parameters
    ----------
    beta_1, beta_2 : float, default 0.9 and 0.999
        Decay rates of the running means, in [0, 1), also in float32.
    epsilon : float, default 1e-7
        Floor of the denominator, > 0, also in float32.
    amsgrad : bool, default False
        Whether the largest `v` so far takes the place of `v` in the denominator.
    weight_decay : float, default 0
        See `Optimizer`.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    Kingma, Ba, ICLR 2015, section 2, last paragraph (the order with "epsilon hat"); Reddi, Kale, Kumar,
    ICLR 2018, algorithm 2.
    """

    amsgrad: bool = False

    name: ClassVar[str] = "Adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bool("amsgrad", self.amsgrad)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("m", "v", "v_hat") if self.amsgrad else ("m", "v")

    @property
    def kind(self) -> Kind:
        return Kind.AMSGRAD if self.amsgrad else Kind.ADAM

    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        second_correction = round_32(sqrt(round_32(1.0 - power_32(self.beta_2, t))))
        first_correction = round_32(1.0 - power_32(self.beta_1, t))
        alpha = round_32(round_32(learning_rate * second_correction) / first_correction)
        # 1 - beta is taken in float64 and then rounded, as Keras does; 1 - float32(0.999) is off by 1e-5 of
        # itself.
        return alpha, 1.0 - self.beta_1, 1.0 - self.beta_2, self.epsilon


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with weight decay; `Adam` with other defaults.

    Parameters
    ----------
    weight_decay : float, default 0.004
        See `Optimizer`; all other settings are those of `Adam`.

    References
    ----------
    Loshchilov, Hutter, ICLR 2019, algorithm 2.
    """

    weight_decay: float = 0.004

    name: ClassVar[str] = "AdamW"


@dataclass(frozen=True, kw_only=True)
class Adamax(_Moments):
    """Adam with the largest recent gradient in place of the root mean square.

    ``m`` as in `Adam`, ``u = max(beta_2 * u, |gradient|)``,
    ``value -= lr * m / ((1 - beta_1**t) * (u + epsilon))``.

    Parameters
    ----------
    beta_1, beta_2 : float, default 0.9 and 0.999
        Decay rates, in [0, 1), also in float32.
    epsilon : float, default 1e-7
        Floor of the denominator, > 0, also in float32.
    weight_decay : float, default 0
        See `Optimizer`.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    Kingma, Ba, ICLR 2015, section 7.1.
    """

    name: ClassVar[str] = "Adamax"

    @property
    def slots(self) -> tuple[str, ...]:
        return ("m", "u")

    @property
    def kind(self) -> Kind:
        return Kind.ADAMAX

    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        correction = round_32(1.0 - power_32(self.beta_1, t))
        return 1.0 - self.beta_1, self.beta_2, self.epsilon, correction


@dataclass(frozen=True, kw_only=True)
class Nadam(_Moments):
    """Adam that looks one step of momentum ahead.

    With ``mu_t = beta_1 * (1 - 0.96**t / 2)`` and ``P_t = mu_1 * ... * mu_t``, `m` and `v` as in `Adam`:
    ``ahead = mu_{t+1} * m / (1 - P_{t+1}) + (1 - mu_t) * gradient / (1 - P_t)``,
    ``value -= lr * ahead / (sqrt(v / (1 - beta_2**t)) + epsilon)``.

    Parameters
    ----------
    beta_1, beta_2 : float, default 0.9 and 0.999
        Decay rates of the running means, in [0, 1), also in float32.
    epsilon : float, default 1e-7
        Floor of the denominator, > 0, also in float32.
    weight_decay : float, default 0
        See `Optimizer`.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    Dozat, ICLR workshop 2016, algorithm 8, in the form of Keras' Nadam.
    """

    name: ClassVar[str] = "Nadam"

    @property
    def slots(self) -> tuple[str, ...]:
        return ("m", "v")

    @property
    def kind(self) -> Kind:
        return Kind.NADAM

    def _scalars(self, learning_rate: float, t: int) -> Sequence[float]:
        momentum, next_momentum = warming_momentum(self.beta_1, t), warming_momentum(self.beta_1, t + 1)
        product = float(momentum_product(self.beta_1, t))
        return (
            # Unlike Adam, Keras' Nadam rounds the rates to float32 before it subtracts them from 1.
            1.0 - round_32(self.beta_1),
            1.0 - round_32(self.beta_2),
            self.epsilon,
            next_momentum,
            1.0 - round_32(product * next_momentum),
            1.0 - momentum,
            1.0 - product,
            1.0 - power_32(self.beta_2, t),
        )

"""Owns the optimizers of dense parameters: their settings, slots and the scalars of each step.

The loops are in `dense`.  The learning rate and the iteration come with each call, so an optimizer holds no
state: slots belong to the caller.  Scalars are rounded to float32 where Keras 3 rounds them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, Protocol

import numpy as np

from edlz.core_ext import dense
from edlz.core_ext.memory import Float32Array, aligned_zeros

__all__ = ["SGD", "Adam", "DenseOptimizer", "make_optimizer"]


class DenseOptimizer(Protocol):
    """What a holder of parameters asks of an optimizer."""

    @property
    def name(self) -> str:
        """Name of the optimizer, as `make_optimizer` takes it."""
        ...

    @property
    def settings(self) -> dict[str, float | bool]:
        """All settings by name, without the learning rate, as `make_optimizer` takes them."""
        ...

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the slots, in a fixed order."""
        ...

    def initial_slots(self, count: int) -> dict[str, Float32Array]:
        """Return the slots before the first step, each float32 of shape (count,)."""
        ...

    def apply(
        self,
        out: Float32Array,
        values: Float32Array,
        slots: Mapping[str, Float32Array],
        gradient: Float32Array,
        learning_rate: float,
        iteration: int,
    ) -> None:
        """Take one step from `values` to `out`; see `SGD.apply`."""
        ...


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Gradient descent, with momentum if that is not 0.

    Parameters
    ----------
    momentum : float, default 0
        In [0, 1].
    nesterov : bool, default False
        Whether a step with momentum looks ahead.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    """

    momentum: float = 0.0
    nesterov: bool = False

    name: ClassVar[str] = "SGD"

    def __post_init__(self) -> None:
        _require_number("momentum", self.momentum)
        if not 0 <= self.momentum <= 1:
            raise ValueError(f"momentum={self.momentum} is not within 0 and 1; 0.9 is usual")
        if not isinstance(self.nesterov, bool):
            raise ValueError(f"nesterov={self.nesterov!r} is neither True nor False")

    @property
    def settings(self) -> dict[str, float | bool]:
        return asdict(self)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def initial_slots(self, count: int) -> dict[str, Float32Array]:
        return {slot: aligned_zeros(count, np.float32) for slot in self.slots}

    def apply(
        self,
        out: Float32Array,
        values: Float32Array,
        slots: Mapping[str, Float32Array],
        gradient: Float32Array,
        learning_rate: float,
        iteration: int,
    ) -> None:
        """Take one step from `values` to `out`; the slots change in place.

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
        _check_step(learning_rate, iteration)
        if self.momentum:
            slot = slots["momentum"]
            dense.apply_momentum(out, values, slot, gradient, learning_rate, self.momentum, self.nesterov)
        else:
            dense.apply_sgd(out, values, gradient, learning_rate)


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam, with the correction for the zero start folded into the learning rate.

    Parameters
    ----------
    beta_1, beta_2 : float
        Decay rates of the running means, in [0, 1), also in float32.
    epsilon : float
        Floor of the denominator, > 0, also in float32.

    Raises
    ------
    ValueError
        If a setting is out of its range.

    References
    ----------
    Kingma, Ba, ICLR 2015, section 2.
    """

    beta_1: float
    beta_2: float
    epsilon: float

    name: ClassVar[str] = "Adam"

    def __post_init__(self) -> None:
        for setting in ("beta_1", "beta_2"):
            beta = getattr(self, setting)
            _require_number(setting, beta)
            if not (beta >= 0 and _is_finite_in_float32(beta) and np.float32(beta) < 1):
                raise ValueError(f"{setting}={beta} is not within 0 and 1 (1 left out) in float32")
        _require_number("epsilon", self.epsilon)
        if not (_is_finite_in_float32(self.epsilon) and np.float32(self.epsilon) > 0):
            raise ValueError(f"epsilon={self.epsilon} is not above 0 in float32; 1e-7 is usual")

    @property
    def settings(self) -> dict[str, float | bool]:
        return asdict(self)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("m", "v")

    def initial_slots(self, count: int) -> dict[str, Float32Array]:
        return {slot: aligned_zeros(count, np.float32) for slot in self.slots}

    def apply(
        self,
        out: Float32Array,
        values: Float32Array,
        slots: Mapping[str, Float32Array],
        gradient: Float32Array,
        learning_rate: float,
        iteration: int,
    ) -> None:
        """Take one step from `values` to `out`; arguments and errors as in `SGD.apply`."""
        _check_step(learning_rate, iteration)
        alpha = self._corrected_rate(learning_rate, iteration + 1)
        dense.apply_adam(
            out, values, slots["m"], slots["v"], gradient, alpha, self.beta_1, self.beta_2, self.epsilon
        )

    def _corrected_rate(self, learning_rate: float, step: int) -> float:
        """Return ``lr * sqrt(1 - beta_2**step) / (1 - beta_1**step)``, each operation in float32."""
        one = np.float32(1)
        beta_1_power = np.float32(_power(float(np.float32(self.beta_1)), step))
        beta_2_power = np.float32(_power(float(np.float32(self.beta_2)), step))
        with np.errstate(under="ignore", over="ignore"):
            rate = np.float32(learning_rate) * np.sqrt(one - beta_2_power) / (one - beta_1_power)
        return float(rate)


def make_optimizer(name: str, settings: Mapping[str, float | bool]) -> DenseOptimizer:
    """Build an optimizer from what travels in a message.

    Parameters
    ----------
    name : str
        "SGD" or "Adam", in upper or lower case.
    settings : mapping of str to float or bool
        The class's parameters by name, without the learning rate.

    Returns
    -------
    DenseOptimizer

    Raises
    ------
    ValueError
        If there is no such optimizer, or a setting is unknown, missing or out of its range.
    """
    build = _BUILDERS.get(name.lower())
    if build is None:
        raise ValueError(f'optimizer "{name}" is not supported; use one of {", ".join(_NAMES)}')
    return build(name, settings)


def _make_sgd(name: str, settings: Mapping[str, float | bool]) -> DenseOptimizer:
    _check_settings(name, settings, known=("momentum", "nesterov"), required=())
    nesterov = settings.get("nesterov", False)
    if not isinstance(nesterov, bool):
        raise ValueError(f"nesterov={nesterov!r} is neither True nor False")
    return SGD(momentum=settings.get("momentum", 0.0), nesterov=nesterov)


def _make_adam(name: str, settings: Mapping[str, float | bool]) -> DenseOptimizer:
    names = ("beta_1", "beta_2", "epsilon")
    _check_settings(name, settings, known=names, required=names)
    return Adam(beta_1=settings["beta_1"], beta_2=settings["beta_2"], epsilon=settings["epsilon"])


_NAMES = (SGD.name, Adam.name)
_BUILDERS: dict[str, Callable[[str, Mapping[str, float | bool]], DenseOptimizer]] = {
    SGD.name.lower(): _make_sgd,
    Adam.name.lower(): _make_adam,
}


def _check_settings(
    name: str, settings: Mapping[str, float | bool], known: tuple[str, ...], required: tuple[str, ...]
) -> None:
    for setting in settings:
        if setting not in known:
            raise ValueError(
                f'setting "{setting}" of optimizer "{name}" is unknown; it takes {", ".join(known)}'
            )
    for setting in required:
        if setting not in settings:
            raise ValueError(f'setting "{setting}" of optimizer "{name}" is missing; give it a number')


def _require_number(setting: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{setting}={value!r} is not a number")


def _check_step(learning_rate: float, iteration: int) -> None:
    if not _is_finite_in_float32(learning_rate):
        raise ValueError(f"learning_rate={learning_rate} is not finite in float32; check the schedule")
    if iteration < 0:
        raise ValueError(f"iteration={iteration} is negative; the first step has iteration 0")


def _is_finite_in_float32(value: float) -> bool:
    with np.errstate(over="ignore"):
        return math.isfinite(np.float32(value))


def _power(base: float, exponent: int) -> float:
    """Return ``base**exponent`` by repeated squaring in float64, with exponent >= 0.

    The C library's pow may differ in the last bit from machine to machine; products do not.
    """
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result

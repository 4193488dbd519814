"""NumPy twin of steps.h: what one step of each optimizer computes, with the same bits.

Nothing is checked.  Each function takes the values after weight decay, changes the slots in place and returns
the new values; `p` are the float32 scalars that steps.h lists for the kind, the learning rate first.  All are
the formulas of Keras 3, named in `edlz.core_ext.optimizers`.
"""

from collections.abc import Callable, Sequence

import numpy as np

from edlz.core_ext.memory import Float32Array
from edlz.core_ext.steps import Kind, Step

__all__ = ["FORMULAS", "take_step"]

_Scalars = Sequence[Float32Array]  # of shape (1,)
_Slots = Sequence[Float32Array]
_StepFunction = Callable[[Float32Array, _Slots, Float32Array, _Scalars], Float32Array]


def take_step(step: bytes, values: Float32Array, slots: _Slots, gradient: Float32Array) -> Float32Array:
    """Take one step; the slots change in place.

    Parameters
    ----------
    step : bytes
        `Step.packed`.
    values, gradient : ndarray, shape (n,), float32
    slots : sequence of ndarray, shape (n,), float32
        As many as the kind has; of row-wise Adagrad one of shape (1,).

    Returns
    -------
    ndarray, shape (n,), float32
        The new values.
    """
    unpacked = Step.unpack(step)
    p = [np.full(1, scalar, np.float32) for scalar in unpacked.scalars]
    with np.errstate(all="ignore"):
        if unpacked.decay != 0:
            values = values - values * np.full(1, unpacked.decay, np.float32) * p[0]
        return FORMULAS[unpacked.kind](values, slots, gradient, p)


def _sgd(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    return values - gradient * p[0]


def _momentum(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    slots[0][:] = slots[0] * p[1] - gradient * p[0]
    return values + slots[0]


def _nesterov(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    slots[0][:] = slots[0] * p[1] - gradient * p[0]
    return values + (slots[0] * p[1] - gradient * p[0])


def _adam(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    alpha, epsilon = p[1], p[4]
    _move_moments(slots, gradient, p[2], p[3])
    return values - slots[0] * alpha / (_root(slots[1]) + epsilon)


def _amsgrad(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    alpha, epsilon = p[1], p[4]
    _move_moments(slots, gradient, p[2], p[3])
    slots[2][:] = _larger(slots[2], slots[1])
    return values - slots[0] * alpha / (_root(slots[2]) + epsilon)


def _adagrad(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    slots[0][:] = slots[0] + gradient * gradient
    return values - gradient * p[0] / _root(slots[0] + p[1])


def _rowwise_adagrad(
    values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars
) -> Float32Array:
    if len(gradient) == 0:
        return values
    # accumulate goes from element to element, where sum would add pairs.
    total: Float32Array = np.add.accumulate(gradient * gradient)[-1:]
    slots[0][:] = slots[0] + total / np.full(1, len(gradient), np.float32)
    return values - gradient * p[0] / _root(slots[0] + p[1])


def _rmsprop(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    _decay_average(slots[0], gradient * gradient, p)
    return values - gradient * p[0] / _root(slots[0] + p[3])


def _rmsprop_momentum(
    values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars
) -> Float32Array:
    _decay_average(slots[0], gradient * gradient, p)
    slots[1][:] = slots[1] * p[4] + gradient * p[0] / _root(slots[0] + p[3])
    return values - slots[1]


def _rmsprop_centered(
    values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars
) -> Float32Array:
    _decay_average(slots[0], gradient * gradient, p)
    _decay_average(slots[1], gradient, p)
    return values - gradient * p[0] / _root(slots[0] - slots[1] * slots[1] + p[3])


def _rmsprop_centered_momentum(
    values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars
) -> Float32Array:
    _decay_average(slots[0], gradient * gradient, p)
    _decay_average(slots[1], gradient, p)
    variance = slots[0] - slots[1] * slots[1] + p[3]
    slots[2][:] = slots[2] * p[4] + gradient * p[0] / _root(variance)
    return values - slots[2]


def _adadelta(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    epsilon = p[3]
    _decay_average(slots[0], gradient * gradient, p)
    move = -(_root(slots[1] + epsilon) * gradient / _root(slots[0] + epsilon))
    _decay_average(slots[1], move * move, p)
    return values + move * p[0]


def _adamax(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    one_minus_beta_1, beta_2, epsilon, correction = p[1:5]
    slots[0][:] = slots[0] + (gradient - slots[0]) * one_minus_beta_1
    slots[1][:] = _larger(slots[1] * beta_2, np.abs(gradient))
    return values - slots[0] * p[0] / ((slots[1] + epsilon) * correction)


def _nadam(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    epsilon, next_momentum, next_correction, one_minus_momentum, correction, second_correction = p[3:9]
    _move_moments(slots, gradient, p[1], p[2])
    ahead = slots[0] * next_momentum / next_correction + gradient * one_minus_momentum / correction
    return values - ahead * p[0] / (_root(slots[1] / second_correction) + epsilon)


def _ftrl(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    learning_rate, l1, twice_l2, twice_shrinkage = p[:4]
    total = slots[0] + gradient * gradient
    sigma = (_root(total) - _root(slots[0])) / learning_rate
    z: Float32Array = slots[1] + (gradient + values * twice_shrinkage - sigma * values)
    above: Float32Array = np.where(z > l1, l1, z)
    clipped: Float32Array = np.where(above < -l1, -l1, above)
    slots[0][:], slots[1][:] = total, z
    return (clipped - z) / (_root(total) / learning_rate + twice_l2)


def _lion(values: Float32Array, slots: _Slots, gradient: Float32Array, p: _Scalars) -> Float32Array:
    beta_1, one_minus_beta_1, beta_2, one_minus_beta_2 = p[1:5]
    blend = slots[0] * beta_1 + gradient * one_minus_beta_1
    sign: Float32Array = np.where(np.abs(blend) > 0, np.copysign(np.ones(1, np.float32), blend), blend)
    slots[0][:] = slots[0] * beta_2 + gradient * one_minus_beta_2
    return values - sign * p[0]


def _move_moments(
    slots: _Slots, gradient: Float32Array, one_minus_beta_1: Float32Array, one_minus_beta_2: Float32Array
) -> None:
    m, v = slots[0], slots[1]
    m[:] = m + (gradient - m) * one_minus_beta_1
    v[:] = v + (gradient * gradient - v) * one_minus_beta_2


def _decay_average(average: Float32Array, incoming: Float32Array, p: _Scalars) -> None:
    rho, one_minus_rho = p[1], p[2]
    average[:] = average * rho + incoming * one_minus_rho


def _root(squares: Float32Array) -> Float32Array:
    root: Float32Array = np.sqrt(squares)
    return root


def _larger(old: Float32Array, incoming: Float32Array) -> Float32Array:
    """Return the incoming element where the two cannot be compared, so that a NaN goes on."""
    larger: Float32Array = np.where(old > incoming, old, incoming)
    return larger


FORMULAS: dict[Kind, _StepFunction] = {
    Kind.SGD: _sgd,
    Kind.MOMENTUM: _momentum,
    Kind.NESTEROV: _nesterov,
    Kind.ADAM: _adam,
    Kind.AMSGRAD: _amsgrad,
    Kind.ADAGRAD: _adagrad,
    Kind.ROWWISE_ADAGRAD: _rowwise_adagrad,
    Kind.RMSPROP: _rmsprop,
    Kind.RMSPROP_MOMENTUM: _rmsprop_momentum,
    Kind.RMSPROP_CENTERED: _rmsprop_centered,
    Kind.RMSPROP_CENTERED_MOMENTUM: _rmsprop_centered_momentum,
    Kind.ADADELTA: _adadelta,
    Kind.ADAMAX: _adamax,
    Kind.NADAM: _nadam,
    Kind.FTRL: _ftrl,
    Kind.LION: _lion,
}
"""Of each kind: `f(values, slots, gradient, p)`, after weight decay; also for numbers that know their errors."""

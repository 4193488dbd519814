"""NumPy twins of the dense kernels: same signatures, same bits, several times slower.

They say what each kernel computes and are the measure in its tests.  They do not check their arrays: what
`dense` refuses is undefined here.
"""

import numpy as np

from edlz.core_ext.memory import Float32Array

__all__ = ["add", "apply_adam", "apply_momentum", "apply_sgd", "copy", "divide"]


def copy(out: Float32Array, values: Float32Array) -> None:
    """Copy `values` to `out`.

    Parameters
    ----------
    out : ndarray, shape (n,), float32
        Written; may be `values`.
    values : ndarray, shape (n,), float32

    Raises
    ------
    ValueError
        If the arrays do not fit each other; nothing has been changed.
    """
    np.copyto(out, values)


def add(accumulator: Float32Array, gradient: Float32Array) -> None:
    """Add a gradient to a sum, in place: ``accumulator += gradient``.

    Parameters
    ----------
    accumulator : ndarray, shape (n,), float32
        Written.
    gradient : ndarray, shape (n,), float32

    Raises
    ------
    ValueError
        If the arrays do not fit each other; nothing has been changed.

    Notes
    -----
    Float addition is not associative: whoever promises equal bits adds gradients in a fixed order.
    """
    with np.errstate(all="ignore"):
        np.add(accumulator, gradient, out=accumulator)


def divide(accumulator: Float32Array, divisor: float) -> None:
    """Divide a sum, in place: ``accumulator /= float32(divisor)``.

    A true division: multiplying by the reciprocal would round twice.

    Parameters
    ----------
    accumulator : ndarray, shape (n,), float32
        Written.
    divisor : float
        Rounded to float32 first.

    Raises
    ------
    ZeroDivisionError
        If `divisor` is 0 in float32; nothing has been changed.
    ValueError
        If the array does not fit.
    """
    with np.errstate(all="ignore"):
        divisor_32 = np.float32(divisor)
        if divisor_32 == 0:
            raise ZeroDivisionError(
                "divisor is 0 in float32; divide by the number of gradients that were added"
            )
        np.divide(accumulator, divisor_32, out=accumulator)


def apply_sgd(out: Float32Array, values: Float32Array, gradient: Float32Array, learning_rate: float) -> None:
    """Take one step of plain gradient descent: ``out = values - learning_rate * gradient``.

    Parameters
    ----------
    out : ndarray, shape (n,), float32
        Written; may be `values`.
    values, gradient : ndarray, shape (n,), float32
    learning_rate : float
        Rounded to float32 first.

    Raises
    ------
    ValueError
        If the arrays do not fit each other; nothing has been changed.
    """
    with np.errstate(all="ignore"):
        np.subtract(values, gradient * np.float32(learning_rate), out=out)


def apply_momentum(
    out: Float32Array,
    values: Float32Array,
    momentum_slot: Float32Array,
    gradient: Float32Array,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """Take one step of gradient descent with momentum.

    ``slot = momentum * slot - learning_rate * gradient``, then ``out = values + slot``, or with `nesterov`
    ``out = values + (momentum * slot - learning_rate * gradient)`` with the new slot.

    Parameters
    ----------
    out : ndarray, shape (n,), float32
        Written; may be `values`.
    values, gradient : ndarray, shape (n,), float32
    momentum_slot : ndarray, shape (n,), float32
        Updated in place.
    learning_rate, momentum : float
        Rounded to float32 first.
    nesterov : bool
        Whether the step looks ahead.

    Raises
    ------
    ValueError
        If the arrays do not fit each other; nothing has been changed.

    References
    ----------
    Sutskever, Martens, Dahl, Hinton, ICML 2013, equations 1 to 4, in the form of Keras' SGD.
    """
    with np.errstate(all="ignore"):
        momentum_32 = np.float32(momentum)
        step = gradient * np.float32(learning_rate)
        np.subtract(momentum_slot * momentum_32, step, out=momentum_slot)
        move = momentum_slot * momentum_32 - step if nesterov else momentum_slot
        np.add(values, move, out=out)


def apply_adam(
    out: Float32Array,
    values: Float32Array,
    m: Float32Array,
    v: Float32Array,
    gradient: Float32Array,
    alpha: float,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> None:
    """Take one step of Adam.

    ``m += (1 - beta_1) * (gradient - m)``, ``v += (1 - beta_2) * (gradient**2 - v)``,
    ``out = values - alpha * m / (sqrt(v) + epsilon)``.

    Parameters
    ----------
    out : ndarray, shape (n,), float32
        Written; may be `values`.
    values, gradient : ndarray, shape (n,), float32
    m, v : ndarray, shape (n,), float32
        Running means of the gradient and of its square; updated in place.
    alpha : float
        Learning rate with the correction for the zero start: ``lr * sqrt(1 - beta_2**t) / (1 - beta_1**t)``.
        Rounded to float32 first.
    beta_1, beta_2 : float
        Decay rates; ``1 - beta`` is taken in float64 and then rounded to float32.
    epsilon : float
        Floor of the denominator, outside the root; rounded to float32 first.

    Raises
    ------
    ValueError
        If the arrays do not fit each other; nothing has been changed.

    References
    ----------
    Kingma, Ba, ICLR 2015, section 2, last paragraph (the order with "epsilon hat").
    """
    with np.errstate(all="ignore"):
        np.add(m, (gradient - m) * np.float32(1.0 - beta_1), out=m)
        np.add(v, (gradient * gradient - v) * np.float32(1.0 - beta_2), out=v)
        np.subtract(values, m * np.float32(alpha) / (np.sqrt(v) + np.float32(epsilon)), out=out)

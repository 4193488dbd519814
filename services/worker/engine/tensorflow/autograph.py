"""AutoGraph for the user's functions alone.

A function that is traced may have `if` and `for` on tensors only where AutoGraph translates it.  Users may count on
that in what TensorFlow would translate of theirs: feeds, losses, metrics, and what these hand on.  Translating edlz' own
functions on the way to them as well takes longer than to trace a small model, in each process anew; so those are traced
as they are.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.python.autograph.core.ag_ctx import ControlStatusCtx, Status
from tensorflow.python.autograph.core.converter import ConversionOptions
from tensorflow.python.autograph.impl.api import converted_call

from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["call_users", "to_be_traced", "within_autograph"]

_OPTIONS = ConversionOptions(recursive=True, optional_features=None)


def to_be_traced(function: Callable[..., Any], specs: Sequence[Any] | None = None) -> Any:
    """Return a tf.function of one of ours, as `within_autograph`; `specs` is its input signature."""
    return tf.function(within_autograph(function), input_signature=specs, autograph=False)


def within_autograph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ours that is traced as it is, and inside of which what is the user's is translated.

    That is what `call_users` calls, and what TensorFlow takes of them there: to map a dataset, or a tensor.
    """

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with ControlStatusCtx(status=Status.ENABLED, options=_OPTIONS):
            return function(*args, **kwargs)

    return traced


def call_users(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the user's as translated code would: translated where something is traced, or else as it is.

    Raises
    ------
    Exception
        Whatever the function raises; AutoGraph notes on it the frames of the original.
    """
    if tf.executing_eagerly():
        return function(*args, **kwargs)
    return converted_call(function, args, kwargs or None, options=_OPTIONS)

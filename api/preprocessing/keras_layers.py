"""Layers of Keras under the names and arguments of ElasticDL's preprocessing library."""

from collections.abc import Sequence
from typing import Any

import keras

__all__ = ["Discretization", "Hashing"]

Hashing = keras.layers.Hashing


def Discretization(bins: Sequence[float], **kwargs: Any) -> keras.layers.Discretization:  # noqa: N802
    """Return Keras' layer that numbers the ranges between bounds.

    Parameters
    ----------
    bins : sequence of float
        The bounds, ascending: `[0, 1, 2]` makes (-inf, 0), [0, 1), [1, 2), [2, inf), numbered 0 to 3.
    **kwargs
        Of `keras.layers.Discretization`.
    """
    return keras.layers.Discretization(bin_boundaries=list(bins), **kwargs)

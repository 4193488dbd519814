"""The deep part of the models: a stack of dense layers."""

from collections.abc import Sequence
from typing import Any

from keras import layers

__all__ = ["perceptron"]


def perceptron(x: Any, sizes: Sequence[int], dropout: float = 0.0) -> Any:
    """Return the last hidden layer's output, (n, sizes[-1]), on an input (n, width)."""
    for size in sizes:
        x = layers.Dense(size, activation="relu")(x)
        if dropout:
            x = layers.Dropout(dropout)(x)
    return x

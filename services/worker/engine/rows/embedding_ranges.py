"""Naming the layer whose id is out of range: TensorFlow's own error names neither layer nor table."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from edlz.services.worker.engine.tensorflow.backend import keras, tf

__all__ = ["named_ranges"]


@contextmanager
def named_ranges() -> Iterator[None]:
    """While this lasts, plain embeddings that are called eagerly check their ids, and say who they are."""
    cls = keras.layers.Embedding
    original = cls.call

    def call(self: Any, inputs: Any) -> Any:
        _check(self, inputs)
        return original(self, inputs)

    cls.call = call
    try:
        yield
    finally:
        cls.call = original


def _check(layer: Any, inputs: Any) -> None:
    flat = inputs.values if isinstance(inputs, tf.SparseTensor) else getattr(inputs, "flat_values", inputs)
    if not isinstance(flat, tf.Tensor) or not hasattr(flat, "numpy"):
        return
    ids, size = flat.numpy(), layer.input_dim
    wrong = ids[(ids < -size) | (ids >= size)]  # -1 is the last row
    if wrong.size:
        raise ValueError(f"layer {layer.name}: id {np.ravel(wrong)[0]} is not within [0, {size})")

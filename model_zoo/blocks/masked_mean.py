"""Pooling of fields with several values."""

from typing import Any

import keras
from keras import ops

__all__ = ["MaskedMean"]


@keras.saving.register_keras_serializable(package="edlz_zoo")
class MaskedMean(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Averages the vectors that count: (n, fields, values, dim) and (n, values) to (n, fields, dim).

    Filling has weight 0; without any value the mean is zero.
    """

    def call(self, vectors: Any, weights: Any) -> Any:
        total = ops.einsum("nfvd,nv->nfd", vectors, weights)
        count = ops.maximum(ops.sum(weights, axis=1), 1.0)
        return total / count[:, None, None]

    def compute_output_shape(self, vectors_shape: Any, weights_shape: Any) -> Any:
        return (*vectors_shape[:2], vectors_shape[3])

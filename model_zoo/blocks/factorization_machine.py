"""The second-order part of a factorization machine."""

from typing import Any

import keras
from keras import ops

__all__ = ["FactorizationMachine"]


@keras.saving.register_keras_serializable(package="edlz_zoo")
class FactorizationMachine(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Sums the inner products of all pairs of fields: (n, fields, dim) to (n,).

    References
    ----------
    Rendle, ICDM 2010, lemma 3.1: half of the square of the sum less the sum of the squares.
    """

    def call(self, vectors: Any) -> Any:
        squared_sum = ops.square(ops.sum(vectors, axis=1))
        sum_of_squares = ops.sum(ops.square(vectors), axis=1)
        return 0.5 * ops.sum(squared_sum - sum_of_squares, axis=-1)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape[:1]

"""Layers in which the fields of an input meet: of factorization machines, DCN-v2 and xDeepFM; the mean of a field's values."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers, ops

__all__ = ["CrossNetwork", "FactorizationMachine", "InteractionNetwork", "MaskedMean"]


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


@keras.saving.register_keras_serializable(package="edlz_zoo")
class InteractionNetwork(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Interacts whole vectors, one degree more a layer: (n, fields, dim) to (n, sum of sizes).

    Parameters
    ----------
    sizes : sequence of int
        Feature maps of each layer: the products of each vector of the last layer with each field's, weighted.

    References
    ----------
    Lian et al., xDeepFM, KDD 2018, equations 6 and 8.  All maps of a layer go on to the next one.
    """

    def __init__(self, sizes: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sizes = tuple(sizes)
        self._maps: list[Any] = []

    def build(self, shape: Any) -> None:
        fields, last = shape[1], shape[1]
        for size in self.sizes:
            self._maps.append(layers.Dense(size, use_bias=False))
            self._maps[-1].build((None, None, last * fields))
            last = size
        self.built = True

    def call(self, vectors: Any) -> Any:
        first = ops.transpose(vectors, (0, 2, 1))  # (n, dim, fields): each dimension for itself
        x, pooled = first, []
        for maps in self._maps:
            products = ops.expand_dims(x, 3) * ops.expand_dims(first, 2)
            x = maps(ops.reshape(products, (-1, first.shape[1], x.shape[2] * first.shape[2])))
            pooled.append(ops.sum(x, axis=1))
        return ops.concatenate(pooled, axis=1)

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], sum(self.sizes))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "sizes": list(self.sizes)}


@keras.saving.register_keras_serializable(package="edlz_zoo")
class CrossNetwork(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Crosses features explicitly, one degree more a layer: (n, width) to (n, width).

    Parameters
    ----------
    depth : int
        Number of layers, x_next = x_0 * (W x + b) + x.
    rank : int, optional
        W as the product of two matrices of this rank; without it W is a full matrix.

    References
    ----------
    Wang et al., DCN V2, WWW 2021, equations 1 and 2.
    """

    def __init__(self, depth: int, rank: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.depth, self.rank = depth, rank
        self._narrow: list[Any] = []
        self._wide: list[Any] = []

    def build(self, shape: Any) -> None:
        width = shape[-1]
        for _ in range(self.depth):
            if self.rank is not None:
                self._narrow.append(layers.Dense(self.rank, use_bias=False))
                self._narrow[-1].build(shape)
            self._wide.append(layers.Dense(width))
            self._wide[-1].build((None, self.rank or width))
        self.built = True

    def call(self, inputs: Any) -> Any:
        x = inputs
        for number, wide in enumerate(self._wide):
            inner = x if self.rank is None else self._narrow[number](x)
            x = ops.add(ops.multiply(inputs, wide(inner)), x)
        return x

    def compute_output_shape(self, shape: Any) -> Any:
        return shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "depth": self.depth, "rank": self.rank}


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

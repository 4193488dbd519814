"""The compressed interaction network (CIN) of xDeepFM."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers, ops

__all__ = ["InteractionNetwork"]


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

"""The cross layers of DCN-v2."""

from typing import Any

import keras
from keras import layers, ops

__all__ = ["CrossNetwork"]


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

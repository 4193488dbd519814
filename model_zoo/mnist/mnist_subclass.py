"""The net of `mnist_functional_api`, written as a subclass of `keras.Model`.

Records are `tf.train.Example` with `image` (784 floats, 0 to 255) and `label` (0 to 9), as
`python -m edlz.model_zoo.datasets` writes them.
"""

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.model_zoo.mnist.mnist_functional_api import eval_metrics_fn, feed, loss, optimizer

__all__ = ["CustomModel", "eval_metrics_fn", "feed", "loss", "optimizer"]


class CustomModel(keras.Model):  # type: ignore[misc]  # Keras has no types
    """{"image": (n, 28, 28)} to logits (n, 10)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(name="mnist_model", **kwargs)
        self._reshape = layers.Reshape((28, 28, 1))
        self._conv1 = layers.Conv2D(32, kernel_size=(3, 3), activation="relu")
        self._conv2 = layers.Conv2D(64, kernel_size=(3, 3), activation="relu")
        self._batch_norm = layers.BatchNormalization()
        self._pooling = layers.MaxPooling2D(pool_size=(2, 2))
        self._dropout = layers.Dropout(0.25)
        self._flatten = layers.Flatten()
        self._dense = layers.Dense(10)

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        x = self._reshape(inputs["image"])
        x = self._conv2(self._conv1(x))
        x = self._batch_norm(x, training=training)
        x = self._dropout(self._pooling(x), training=training)
        return self._dense(self._flatten(x))

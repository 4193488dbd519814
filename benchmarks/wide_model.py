"""A dense net of 50 million parameters for MNIST's images, with Adam; see replica_memory.py."""

import keras

from edlz.model_zoo.mnist.mnist_functional_api import eval_metrics_fn, feed, loss

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

WIDTH = 4_800


def custom_model() -> keras.Model:
    image = keras.Input((28, 28), name="image")
    x = keras.layers.Flatten()(image)
    for _ in range(3):
        x = keras.layers.Dense(WIDTH, activation="relu")(x)
    return keras.Model({"image": image}, keras.layers.Dense(10)(x))


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(1e-4)

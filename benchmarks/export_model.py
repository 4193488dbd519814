"""A model of one large table, for the measure of exports."""

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.api import Embedding

IDS, DIM = 26, 16


def custom_model() -> keras.Model:
    ids = keras.Input((IDS,), dtype="int64", name="ids")
    x = layers.Flatten()(Embedding(DIM, name="table")(ids))
    return keras.Model(ids, layers.Dense(1)(layers.Dense(64, activation="relu")(x)))


def loss(labels: Any, predictions: Any) -> Any:
    return tf.reduce_mean(tf.square(predictions[:, 0] - labels))


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adagrad(0.01)


def feed(dataset: Any, mode: str, metadata: Any) -> Any:
    return dataset.map(lambda record: (tf.fill([IDS], tf.cast(tf.strings.length(record), tf.int64)), 0.0))

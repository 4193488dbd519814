"""A model of one large table, for the measures of exports."""

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.api import Embedding

IDS, DIM = 26, 16
SPREAD = 0x1E3779B97F4A7C15  # odd, so distinct numbers become distinct ids all over the range


def custom_model() -> keras.Model:
    ids = keras.Input((IDS,), dtype="int64", name="ids")
    x = layers.Flatten()(Embedding(DIM, name="table")(ids))
    return keras.Model(ids, layers.Dense(1)(layers.Dense(64, activation="relu")(x)))


def loss(labels: Any, predictions: Any) -> Any:
    return tf.reduce_mean(tf.square(predictions[:, 0] - labels))


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adagrad(0.01)


def feed(dataset: Any, mode: str, metadata: Any) -> Any:
    """Make of each record, which is a number, ids that are its own."""
    return dataset.map(lambda record: (_ids(tf.strings.to_number(record, tf.int64)), 0.0))


def _ids(number: Any) -> Any:
    return (number * IDS + tf.range(IDS, dtype=tf.int64)) * SPREAD

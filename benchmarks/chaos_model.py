"""The small model of the chaos runs: an embedding table, dense layers, and metrics that count records.

A record is the text of six ids, a target and the record's own number.
"""

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from benchmarks.chaos_data import IDS
from edlz.api.embedding import Embedding


def custom_model(is_dense: bool = False) -> keras.Model:
    """Return the model; all members of a group hold a dense one, whose rows are a layer of Keras."""
    ids = keras.Input((IDS,), dtype="int64", name="ids")
    if is_dense:
        rows = layers.Embedding(200, 4, name="rows")(ids)
    else:
        rows = Embedding(4, embeddings_initializer="normal", optimizer="adagrad", name="rows")(ids)
    x = layers.Dense(8, activation="relu")(layers.Flatten()(rows))
    return keras.Model(ids, layers.Dense(1)(layers.BatchNormalization()(x)))


def loss(labels: Any, predictions: Any) -> Any:
    return tf.reduce_mean(tf.square(predictions[:, 0] - labels[:, 0]))


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(learning_rate=0.01)


def feed(dataset: Any, mode: str, metadata: Any) -> Any:
    def parse(record: Any) -> Any:
        values = tf.strings.to_number(tf.strings.split(record, ","))
        values = tf.ensure_shape(values, [IDS + 2])
        return tf.cast(values[:IDS], tf.int64), values[IDS:]

    return dataset.map(parse)


def eval_metrics_fn() -> dict[str, keras.metrics.Metric]:
    return {
        "records": Records(power=0),
        "numbers": Records(power=1),
        "nan": lambda labels, predictions: labels[:, 1] * float("nan"),
        "inf": lambda labels, predictions: labels[:, 1] + float("inf"),
    }


class Records(keras.metrics.Metric):  # type: ignore[misc]
    """The sum of a power of the records' numbers: 0 counts them, 1 tells which they were."""

    def __init__(self, power: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._power = power
        self._sum = self.add_weight(shape=(), initializer="zeros", name="sum")

    def update_state(self, labels: Any, predictions: Any, sample_weight: Any = None) -> None:
        self._sum.assign_add(tf.reduce_sum(labels[:, 1] ** self._power))

    def result(self) -> Any:
        return self._sum

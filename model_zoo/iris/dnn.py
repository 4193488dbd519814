"""A small perceptron for Iris, on CSV as it is: which of three species is this flower?

Rows: `iris.converter`; the published file itself, without a header, goes in as well:
`--data_reader_params="reader_type=CSV;header=no;columns=sepal_length,sepal_width,petal_length,petal_width,species"`.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.api.feeds import batched
from edlz.model_zoo.blocks.feeds import features_and_label
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.iris.converter import COLUMNS, SPECIES

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


def custom_model(hidden: Sequence[int] = (16,), dropout: float = 0.0) -> keras.Model:
    """Return the model: {column: (n,)} to logits (n, 3).

    Parameters
    ----------
    hidden : sequence of int
        Sizes of the perceptron's layers.
    dropout : float
        After each of them.
    """
    inputs = {name: keras.Input((), name=name) for name in COLUMNS}
    x = layers.Concatenate()([column[:, None] for column in inputs.values()])
    logits = layers.Dense(len(SPECIES), name="logits")(perceptron(x, hidden, dropout))
    return keras.Model(inputs, logits, name="iris_dnn")


def loss(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Return the mean cross-entropy of species (n,), by their numbers, and logits (n, 3)."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions))


def optimizer(learning_rate: float = 0.02) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(learning_rate)


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of columns into ({column: (n,)}, species), or columns alone to predict."""
    return features_and_label(dataset, mode, _features, label="species", of_label=_number)


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}


def _features(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: tf.cast(columns[name], tf.float32) for name in COLUMNS}


def _number(species: Any) -> Any:
    """Return the species' numbers (n,)."""
    is_it = tf.cast(tf.equal(species[:, tf.newaxis], tf.constant(SPECIES)), tf.int64)
    tf.debugging.assert_equal(tf.reduce_sum(is_it, axis=1), tf.constant(1, tf.int64), "an unknown species")
    return tf.argmax(is_it, axis=1)

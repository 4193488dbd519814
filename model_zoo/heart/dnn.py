"""A small perceptron for UCI's Heart Disease: has this patient one?

Records: `heart.converter`.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.api.feeds import batched
from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.feeds import parse_examples
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.heart.converter import COLUMNS

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

_SCHEMA = {name: tf.io.FixedLenFeature([], tf.float32) for name in COLUMNS}
_KINDS = {"cp": 4, "restecg": 3, "slope": 3, "thal": 3}
"""Columns that name a kind, and how many kinds there are."""

_LOWEST = {"cp": 1, "restecg": 0, "slope": 1, "thal": 3}
_SCALES = {"age": (54.0, 9.0), "trestbps": (132.0, 18.0), "chol": (247.0, 52.0), "thalach": (150.0, 23.0)}
"""Rough mean and spread of columns of large numbers."""

_WIDTH = len(COLUMNS) - len(_KINDS) + sum(_KINDS.values())


def custom_model(hidden: Sequence[int] = (16,), dropout: float = 0.2) -> keras.Model:
    """Return the model: {"numbers": (n, 22)} to logits (n,)."""
    numbers = keras.Input((_WIDTH,), name="numbers")
    logits = layers.Dense(1, name="logit")(perceptron(numbers, hidden, dropout))
    return keras.Model({"numbers": numbers}, logits[:, 0], name="heart_dnn")


def optimizer(learning_rate: float = 0.01) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(learning_rate)


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of serialised Examples into ({"numbers": (22,)}, label), or features alone to predict."""
    return parse_examples(dataset, mode, _SCHEMA, _features)


def _features(parsed: dict[str, Any]) -> dict[str, Any]:
    return {"numbers": tf.concat([_numbers(name, parsed[name]) for name in COLUMNS], axis=1)}


def _numbers(name: str, column: Any) -> Any:
    """Return a column's part of the input, (n, 1), or (n, kinds) with a one at the kind; zeros if missing."""
    if name in _KINDS:
        place = tf.where(tf.math.is_nan(column), -1.0, column - _LOWEST[name])
        if name == "thal":  # 3, 6, 7
            place = tf.where(place > 0.0, place - 2.0, place)
        return tf.one_hot(tf.cast(place, tf.int32), _KINDS[name])
    mean, spread = _SCALES.get(name, (0.0, 1.0))
    scaled = (column - mean) / spread
    return tf.where(tf.math.is_nan(scaled), 0.0, scaled)[:, tf.newaxis]

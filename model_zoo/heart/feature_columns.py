"""A small perceptron for UCI's Heart Disease, written with TensorFlow's feature columns.

Records: `heart.converter`.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.api.feature_columns import DenseFeatures
from edlz.api.feeds import batched
from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.feeds import parse_examples
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.heart.converter import COLUMNS
from edlz.model_zoo.heart.dnn import optimizer

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

_SCHEMA = {name: tf.io.FixedLenFeature([], tf.float32) for name in COLUMNS}
_RANGES = {
    "age": [40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0],
    "trestbps": [110.0, 120.0, 130.0, 140.0, 150.0],
    "chol": [200.0, 225.0, 250.0, 275.0, 300.0],
    "thalach": [120.0, 135.0, 150.0, 165.0],
    "oldpeak": [0.5, 1.0, 2.0, 3.0],
    "ca": [0.5, 1.5, 2.5],
}
"""Bounds of numbers; one that is missing is below all of them."""

_KINDS = {"cp": 5, "restecg": 3, "slope": 4, "thal": 8}
"""Columns that name a kind, and what its number is below."""

_MISSING = -1.0


def custom_model(dim: int = 4, hidden: Sequence[int] = (16,), dropout: float = 0.2) -> keras.Model:
    """Return the model: the 13 columns as they are published, (n, 1) each, to logits (n,).

    Parameters
    ----------
    dim : int
        Length of the vector of a kind.
    hidden : sequence of int
        Sizes of the perceptron's layers.
    dropout : float
        After each of them.
    """
    inputs = {
        name: keras.Input((1,), name=name, dtype="int64" if name in _KINDS else "float32") for name in COLUMNS
    }
    x = DenseFeatures(_columns(dim), name="columns")(inputs)
    logits = layers.Dense(1, name="logit")(perceptron(x, hidden, dropout))
    return keras.Model(inputs, logits[:, 0], name="heart_feature_columns")


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of serialised Examples into ({column: (1,)}, label), or columns alone to predict."""
    return parse_examples(dataset, mode, _SCHEMA, _features)


def _features(parsed: dict[str, Any]) -> dict[str, Any]:
    """Return the columns, (n, 1) each: kinds as integers, what is missing as -1."""
    present = {name: tf.where(tf.math.is_nan(values), _MISSING, values) for name, values in parsed.items()}
    return {
        name: tf.cast(values, tf.int64 if name in _KINDS else tf.float32)[:, tf.newaxis]
        for name, values in present.items()
    }


def _columns(dim: int) -> list[Any]:
    fc = tf.feature_column
    ranges = [fc.bucketized_column(fc.numeric_column(name), bounds) for name, bounds in _RANGES.items()]
    kinds = [fc.categorical_column_with_identity(name, count) for name, count in _KINDS.items()]
    flags = [fc.numeric_column(name) for name in COLUMNS if name not in _RANGES and name not in _KINDS]
    return [*ranges, *flags, *(fc.embedding_column(column, dim) for column in kinds)]

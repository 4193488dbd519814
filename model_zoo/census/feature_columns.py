"""Wide & deep for UCI's Adult, written with TensorFlow's feature columns.

Records: `census.converter`.

References
----------
Cheng et al., Wide & Deep Learning for Recommender Systems, DLRS 2016.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras import layers

from edlz.api.feature_columns import DenseFeatures, concatenated_categorical_column
from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.census.dnn import optimizer
from edlz.model_zoo.census.raw_columns import feed, inputs

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

_AGES = [18, 25, 30, 35, 40, 45, 50, 55, 60, 65]
_BUCKETS = {
    "workclass": 20,
    "education": 40,
    "marital_status": 20,
    "occupation": 40,
    "relationship": 20,
    "race": 20,
    "sex": 10,
    "native_country": 200,
}
"""Texts, and how many hashes each has."""

_CROSS_BUCKETS = 10_000
_SCALES = {
    "age": (38.0, 14.0),
    "education_num": (10.0, 2.5),
    "capital_gain": (1_000.0, 7_500.0),
    "capital_loss": (90.0, 400.0),
    "hours_per_week": (40.0, 12.0),
}
"""Rough mean and spread of numbers."""


def custom_model(dim: int = 8, hidden: Sequence[int] = (64, 32), dropout: float = 0.2) -> keras.Model:
    """Return the model: columns as they are published, (n, 1) each, to logits (n,).

    Parameters
    ----------
    dim : int
        Length of an id's vector.
    hidden : sequence of int
        Sizes of the perceptron's layers.
    dropout : float
        After each of them.
    """
    columns = inputs()
    deep_input = DenseFeatures([*_numbers(), *_vectors(dim)], name="deep_columns")(columns)
    deep = layers.Dense(1, name="deep")(perceptron(deep_input, hidden, dropout))
    wide = DenseFeatures([_weights()], name="wide_columns")(columns)
    return keras.Model(columns, wide[:, 0] + deep[:, 0], name="census_feature_columns")


def _numbers() -> list[object]:
    return [
        tf.feature_column.numeric_column(name, normalizer_fn=_Scaling(*scale))
        for name, scale in _SCALES.items()
    ]


def _vectors(dim: int) -> list[object]:
    return [tf.feature_column.embedding_column(column, dim) for column in _texts()]


def _weights() -> object:
    """Return the linear part: one weight for each text, each range of ages and some of their crosses."""
    crossed = (["education", "occupation"], ["relationship", "education"], [_ages(), "marital_status"])
    crosses = [tf.feature_column.crossed_column(keys, _CROSS_BUCKETS) for keys in crossed]
    zeros = keras.initializers.Zeros()
    everything = concatenated_categorical_column([*_texts(), *crosses])
    return tf.feature_column.embedding_column(everything, 1, combiner="sum", initializer=zeros)


def _texts() -> list[object]:
    return [
        tf.feature_column.categorical_column_with_hash_bucket(name, buckets)
        for name, buckets in _BUCKETS.items()
    ]


def _ages() -> object:
    return tf.feature_column.bucketized_column(tf.feature_column.numeric_column("age"), _AGES)


class _Scaling:
    """`(x - mean) / spread`, as something that two columns with the same numbers have in common."""

    def __init__(self, mean: float, spread: float) -> None:
        self.mean, self.spread = mean, spread

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        return (values - self.mean) / self.spread

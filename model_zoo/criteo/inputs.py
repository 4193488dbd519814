"""What the click models share: how records become inputs, and inputs become vectors.

A minibatch has one matrix of ids for all 26 columns, so a step looks up one table once.
"""

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.api.embedding import Embedding
from edlz.api.feeds import batched
from edlz.model_zoo.blocks.feeds import parse_examples
from edlz.model_zoo.blocks.ids import field_ids
from edlz.model_zoo.criteo.layout import CATEGORICAL, NUMERIC

__all__ = ["Inputs", "embed", "feed", "linear_part", "optimizer"]

_SCHEMA = {
    "numeric": tf.io.FixedLenFeature([NUMERIC], tf.float32),
    "categorical": tf.io.FixedLenFeature([CATEGORICAL], tf.int64),
}
_SCALE = 4.0  # brings most logarithms of counts to between 0 and 2
_MISSING = -1.0  # below any of them


class Inputs:
    """The inputs of a functional model: `numeric` (n, 13), scaled logarithms, and `ids` (n, 26)."""

    def __init__(self) -> None:
        self.numeric = keras.Input((NUMERIC,), name="numeric")
        self.ids = keras.Input((CATEGORICAL,), dtype="int64", name="ids")

    def model(self, logits: Any, name: str) -> keras.Model:
        """Return the model that gives these logits, (n,)."""
        return keras.Model({"numeric": self.numeric, "ids": self.ids}, logits, name=name)


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of serialised Examples (see `layout`) into ({"numeric", "ids"}, label), or features to predict."""
    return parse_examples(dataset, mode, _SCHEMA, _features)


def optimizer(learning_rate: float = 0.1) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adagrad(learning_rate, initial_accumulator_value=0.01)


def embed(inputs: Inputs, dim: int) -> Any:
    """Return the columns' vectors, (n, 26, dim)."""
    return Embedding(dim, embeddings_initializer=_uniform(0.05), name="vectors")(inputs.ids)


def linear_part(inputs: Inputs) -> Any:
    """Return the sum of a weight for each id and of weighted numbers, (n,); all weights start at zero."""
    weights = Embedding(1, embeddings_initializer="zeros", name="weights")(inputs.ids)
    numeric = layers.Dense(1, kernel_initializer="zeros", name="numeric_weights")(inputs.numeric)
    return keras.ops.sum(weights, axis=(1, 2)) + numeric[:, 0]


def _features(parsed: dict[str, Any]) -> dict[str, Any]:
    counts = parsed["numeric"]
    logs = tf.math.log1p(tf.maximum(counts, 0.0)) / _SCALE
    numeric = tf.where(tf.math.is_nan(counts), _MISSING, logs)
    return {"numeric": numeric, "ids": field_ids(parsed["categorical"])}


def _uniform(limit: float) -> keras.initializers.Initializer:
    return keras.initializers.RandomUniform(-limit, limit)

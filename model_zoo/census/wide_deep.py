"""Wide & deep for UCI's Adult: a linear model of crossed categories beside a perceptron.

Records: `census.converter`; inputs: `census.inputs`.

References
----------
Cheng et al., Wide & Deep Learning for Recommender Systems, DLRS 2016.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.api.embedding import Embedding
from edlz.api.feeds import batched
from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.feeds import parse_examples
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.census.dnn import optimizer
from edlz.model_zoo.census.inputs import CROSSES, FIELDS, NUMBERS, SCHEMA, features_and_crosses

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


def custom_model(dim: int = 8, hidden: Sequence[int] = (64, 32), dropout: float = 0.2) -> keras.Model:
    """Return the model: {"ids": (n, 12), "crosses": (n, 9), "numbers": (n, 5)} to logits (n,).

    Parameters
    ----------
    dim : int
        Length of an id's vector.
    hidden : sequence of int
        Sizes of the perceptron's layers.
    dropout : float
        After each of them.
    """
    ids = keras.Input((FIELDS,), dtype="int64", name="ids")
    crosses = keras.Input((CROSSES,), dtype="int64", name="crosses")
    numbers = keras.Input((NUMBERS,), name="numbers")
    near_zero = keras.initializers.RandomUniform(-0.05, 0.05)
    vectors = Embedding(dim, embeddings_initializer=near_zero, name="vectors")(ids)
    x = layers.Concatenate()([layers.Flatten()(vectors), numbers])
    deep = layers.Dense(1, name="deep")(perceptron(x, hidden, dropout))
    both = layers.Concatenate(axis=1)([ids, crosses])
    wide = Embedding(1, embeddings_initializer="zeros", name="weights")(both)
    logits = keras.ops.sum(wide, axis=(1, 2)) + deep[:, 0]
    return keras.Model({"ids": ids, "crosses": crosses, "numbers": numbers}, logits, name="census_wide_deep")


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of serialised Examples into ({"ids", "crosses", "numbers"}, label), or features alone to predict."""
    return parse_examples(dataset, mode, SCHEMA, features_and_crosses)

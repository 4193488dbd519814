"""A perceptron for UCI's Adult: does this person earn more than 50,000 dollars a year?

Records: `census.converter`; inputs: `census.inputs`.
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
from edlz.model_zoo.census.inputs import FIELDS, NUMBERS, SCHEMA, features

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


def custom_model(dim: int = 8, hidden: Sequence[int] = (64, 32), dropout: float = 0.2) -> keras.Model:
    """Return the model: {"ids": (n, 12), "numbers": (n, 5)} to logits (n,).

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
    numbers = keras.Input((NUMBERS,), name="numbers")
    near_zero = keras.initializers.RandomUniform(-0.05, 0.05)
    vectors = Embedding(dim, embeddings_initializer=near_zero, name="vectors")(ids)
    x = layers.Concatenate()([layers.Flatten()(vectors), numbers])
    logits = layers.Dense(1, name="logit")(perceptron(x, hidden, dropout))
    return keras.Model({"ids": ids, "numbers": numbers}, logits[:, 0], name="census_dnn")


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of serialised Examples into ({"ids", "numbers"}, label), or features alone to predict."""
    return parse_examples(dataset, mode, SCHEMA, features)


def optimizer(learning_rate: float = 0.1) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adagrad(learning_rate)

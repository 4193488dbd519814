"""DeepFM for Frappe: will this user use this app now?

Records: `frappe.converter`.

References
----------
Guo et al., DeepFM, IJCAI 2017.
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
from edlz.model_zoo.blocks.interactions import FactorizationMachine
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.frappe.converter import FIELDS

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

_SCHEMA = {"features": tf.io.FixedLenFeature([FIELDS], tf.int64)}


def custom_model(dim: int = 8, hidden: Sequence[int] = (64, 32), dropout: float = 0.2) -> keras.Model:
    """Return the model: {"ids": (n, 10)} to logits (n,).

    Parameters
    ----------
    dim : int
        Length of a feature's vector.
    hidden : sequence of int
        Sizes of the perceptron's layers.
    dropout : float
        After each of them.
    """
    ids = keras.Input((FIELDS,), dtype="int64", name="ids")
    near_zero = keras.initializers.RandomUniform(-0.05, 0.05)
    vectors = Embedding(dim, embeddings_initializer=near_zero, name="vectors")(ids)
    weights = Embedding(1, embeddings_initializer="zeros", name="weights")(ids)
    pairs = FactorizationMachine(name="pairs")(vectors)
    deep = layers.Dense(1, name="deep")(perceptron(layers.Flatten()(vectors), hidden, dropout))
    logits = keras.ops.sum(weights, axis=(1, 2)) + pairs + deep[:, 0]
    return keras.Model({"ids": ids}, logits, name="frappe_deepfm")


def optimizer(learning_rate: float = 0.1) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adagrad(learning_rate, initial_accumulator_value=0.01)


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of serialised Examples into ({"ids": (10,)}, label), or ids alone to predict."""
    return parse_examples(dataset, mode, _SCHEMA, lambda parsed: {"ids": parsed["features"]})

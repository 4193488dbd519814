"""A perceptron for UCI's Adult, on CSV as it is: Keras' StringLookup inside of the model numbers the words.

Rows: `census.converter`, as adult-csv.  What is exported takes raw columns.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from edlz.api.feeds import batched
from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.feeds import features_and_label
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.census.dnn import optimizer
from edlz.model_zoo.census.inputs import VOCABULARIES

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

_SCALES = {"age": (38.6, 13.6), "education_num": (10.1, 2.6), "hours_per_week": (40.4, 12.3)}
"""Rough mean and spread of numbers."""

_LOGARITHMS = ("capital_gain", "capital_loss")


def custom_model(dim: int = 8, hidden: Sequence[int] = (64, 32), dropout: float = 0.2) -> keras.Model:
    """Return the model: {column: (n,)} as they are published, to logits (n,).

    Parameters
    ----------
    dim : int
        Length of a word's vector.
    hidden : sequence of int
        Sizes of the perceptron's layers.
    dropout : float
        After each of them.
    """
    texts = {name: keras.Input((), dtype="string", name=name) for name in VOCABULARIES}
    numbers = {name: keras.Input((), name=name) for name in (*_SCALES, *_LOGARITHMS)}
    parts = [_vector(name, text, dim) for name, text in texts.items()]
    parts += [((numbers[name] - mean) / spread)[:, None] for name, (mean, spread) in _SCALES.items()]
    parts += [keras.ops.log1p(numbers[name])[:, None] / 10 for name in _LOGARITHMS]
    x = perceptron(layers.Concatenate()(parts), hidden, dropout)
    logits = layers.Dense(1, name="logit")(x)
    return keras.Model({**texts, **numbers}, logits[:, 0], name="census_string_lookup")


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of columns into ({column: (n,)}, label), or columns alone to predict."""
    return features_and_label(dataset, mode, _features)


def _features(columns: dict[str, Any]) -> dict[str, Any]:
    numbers = {name: tf.cast(columns[name], tf.float32) for name in (*_SCALES, *_LOGARITHMS)}
    return {**{name: columns[name] for name in VOCABULARIES}, **numbers}


def _vector(name: str, text: Any, dim: int) -> Any:
    """Return the vectors (n, dim) of words; those of no vocabulary, and missing ones, share one."""
    lookup = layers.StringLookup(vocabulary=VOCABULARIES[name].split(), name=f"{name}_number")
    return layers.Embedding(lookup.vocabulary_size(), dim, name=f"{name}_vector")(lookup(text))

"""DeepFM for MovieLens: will this user give this movie four stars or more?

Records: `movielens.converter`; fields: `movielens.inputs`.

References
----------
Guo et al., DeepFM, IJCAI 2017.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers

from edlz.api.embedding import Embedding
from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.interactions import FactorizationMachine, MaskedMean
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.movielens.inputs import GENRE_FIELDS, MOST_GENRES, SINGLE_FIELDS, feed

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

_IDS = SINGLE_FIELDS + GENRE_FIELDS * MOST_GENRES


def custom_model(dim: int = 8, hidden: Sequence[int] = (64, 32), dropout: float = 0.3) -> keras.Model:
    """Return the model: {"ids": (n, 38), "has_genre": (n, 10)} to logits (n,).

    Parameters
    ----------
    dim : int
        Length of an id's vector.
    hidden : sequence of int
        Sizes of the perceptron's layers.
    dropout : float
        After each of them.
    """
    ids = keras.Input((_IDS,), dtype="int64", name="ids")
    has_genre = keras.Input((MOST_GENRES,), name="has_genre")
    near_zero = keras.initializers.RandomUniform(-0.05, 0.05)
    vectors = _pooled(Embedding(dim, embeddings_initializer=near_zero, name="vectors")(ids), has_genre)
    weights = _pooled(Embedding(1, embeddings_initializer="zeros", name="weights")(ids), has_genre)
    pairs = FactorizationMachine(name="pairs")(vectors)
    deep = layers.Dense(1, name="deep")(perceptron(layers.Flatten()(vectors), hidden, dropout))
    logits = keras.ops.sum(weights, axis=(1, 2)) + pairs + deep[:, 0]
    return keras.Model({"ids": ids, "has_genre": has_genre}, logits, name="movielens_deepfm")


def optimizer(learning_rate: float = 0.1) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adagrad(learning_rate, initial_accumulator_value=0.01)


def _pooled(rows: Any, has_genre: Any) -> Any:
    """Return vectors (n, fields, dim) of rows (n, ids, dim): a genre field's is the mean over the genres."""
    dim = rows.shape[-1]
    genres = layers.Reshape((GENRE_FIELDS, MOST_GENRES, dim))(rows[:, SINGLE_FIELDS:])
    return layers.Concatenate(axis=1)([rows[:, :SINGLE_FIELDS], MaskedMean()(genres, has_genre)])

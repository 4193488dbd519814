"""A perceptron for UCI's Adult, with preprocessing layers inside the model: what is exported takes raw columns.

Records: `census.converter`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import layers

from edlz.api import preprocessing
from edlz.api.embedding import Embedding
from edlz.model_zoo.blocks.binary_label import eval_metrics_fn, loss
from edlz.model_zoo.blocks.perceptron import perceptron
from edlz.model_zoo.census.dnn import optimizer
from edlz.model_zoo.census.inputs import VOCABULARIES
from edlz.model_zoo.census.raw_columns import feed, inputs

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

_LOOKED_UP = ("workclass", "marital_status", "relationship", "race", "sex")
_HASHED = {"education": 30, "occupation": 30, "native_country": 100}
_AGES = (18.0, 22.0, 26.0, 30.0, 34.0, 40.0, 46.0, 52.0, 58.0, 65.0)
_LOGARITHMS = ("capital_gain", "capital_loss")
_LOG_BINS = 20  # of base 2: up to 2**20
_HOURS = 100


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
    numbered = _numbered(columns)
    offsets = [sum(count for _, count in numbered[:place]) for place in range(len(numbered))]
    ids = preprocessing.ConcatenateWithOffset(offsets, name="ids")([ids for ids, _ in numbered])
    vectors = Embedding(dim, name="vectors")(ids)
    years = preprocessing.Normalizer(10.0, 2.5, name="years_of_education")(columns["education_num"])
    x = layers.Concatenate()([layers.Flatten()(vectors), years])
    logits = layers.Dense(1, name="logit")(perceptron(x, hidden, dropout))
    return keras.Model(columns, logits[:, 0], name="census_preprocessing_layers")


def _numbered(columns: Mapping[str, Any]) -> list[tuple[Any, int]]:
    """Return ids of the columns, (n, 1) each, and how many different ones there can be."""
    found = []
    for name in _LOOKED_UP:
        lookup = preprocessing.IndexLookup(VOCABULARIES[name].split(), name=f"{name}_number")
        found.append((lookup(columns[name]), lookup.vocabulary_size()))
    for name, bins in _HASHED.items():
        found.append((preprocessing.Hashing(bins, name=f"{name}_hash")(columns[name]), bins))
    found.append((preprocessing.Discretization(_AGES, name="age_range")(columns["age"]), len(_AGES) + 1))
    for name in _LOGARITHMS:
        log_round = preprocessing.LogRound(_LOG_BINS, base=2, name=f"{name}_logarithm")
        found.append((log_round(columns[name]), _LOG_BINS))
    hours = preprocessing.RoundIdentity(_HOURS, name="hours_number")(columns["hours_per_week"])
    return [*found, (hours, _HOURS)]

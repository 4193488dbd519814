"""Layers that turn raw columns into what a model computes with: numbers, ids of categories, bins, concatenations.

They extend Keras' own (`Hashing`, `StringLookup`, `Discretization`, `Normalization`) by those that Keras lacks,
and take dense, ragged and sparse tensors.  Each works in `Dataset.map` (of a feed), and inside a model, so that it
is part of what is exported.
"""

from edlz.api.preprocessing.forms import ConcatenateWithOffset, ToRagged, ToSparse
from edlz.api.preprocessing.numbers import (
    Discretization,
    Hashing,
    LogRound,
    Normalizer,
    RoundIdentity,
    ToNumber,
)
from edlz.api.preprocessing.vocabulary import IndexLookup

__all__ = [
    "ConcatenateWithOffset",
    "Discretization",
    "Hashing",
    "IndexLookup",
    "LogRound",
    "Normalizer",
    "RoundIdentity",
    "ToNumber",
    "ToRagged",
    "ToSparse",
]

"""What a model's `feed` is asked for, and the mark of one that takes minibatches."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

__all__ = ["Mode", "batched", "takes_batches"]

_MARK = "_edlz_takes_batches"
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Mode(StrEnum):
    """The second argument of `feed(dataset, mode, metadata)`; equal to its string."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"


def batched(feed: _Function) -> _Function:
    """Mark a model's `feed(dataset, mode, metadata)`: its dataset gives minibatches in place of single records.

    What it returns must give minibatches as well: one call of a function that is mapped is for a whole minibatch, which
    is many times as fast as one for each record.

    Records that are byte strings come as a vector of them, for `tf.io.parse_example`.  Records with columns come as a dict
    of vectors.  A task's last minibatch may be short.  Records are in their final order: a `shuffle` would move whole
    minibatches.

    Examples
    --------
    >>> @edlz.api.batched
    ... def feed(dataset, mode, metadata):
    ...     return dataset.map(lambda columns: ({"age": columns["age"]}, columns["label"]))
    """
    setattr(feed, _MARK, True)
    return feed


def takes_batches(feed: Callable[..., Any]) -> bool:
    """Whether a feed is marked so."""
    return bool(getattr(feed, _MARK, False))

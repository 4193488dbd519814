"""Rows of Adult as they are published, for models that have their preprocessing inside."""

from typing import Any

import keras
import tensorflow as tf

from edlz.api.feeds import batched
from edlz.model_zoo.blocks.feeds import parse_examples
from edlz.model_zoo.census.inputs import SCHEMA

__all__ = ["feed", "inputs"]


def inputs() -> dict[str, Any]:
    """Return a symbolic tensor, (n, 1), for each column: texts and float32 numbers."""
    return {name: keras.Input((1,), name=name, dtype=column.dtype.name) for name, column in SCHEMA.items()}


@batched
def feed(dataset: tf.data.Dataset, mode: str, metadata: Any) -> tf.data.Dataset:
    """Turn minibatches of serialised Examples into ({column: (1,)}, label), or columns alone to predict."""
    return parse_examples(dataset, mode, SCHEMA, _columns)


def _columns(parsed: dict[str, Any]) -> dict[str, Any]:
    return {name: values[:, tf.newaxis] for name, values in parsed.items()}

"""The click-through model of `ctr_model`, of rows of CSV."""

from typing import Any

import tensorflow as tf

from benchmarks.ctr_data import IDS, NUMBERS
from benchmarks.ctr_model import custom_model, loss, optimizer
from edlz.api import batched

__all__ = ["custom_model", "feed", "loss", "optimizer"]


@batched
def feed(dataset: Any, mode: str, metadata: Any) -> Any:
    return dataset.map(_features)


def _features(columns: dict[str, Any]) -> Any:
    ids = tf.stack([columns[f"id_{place}"] for place in range(IDS)], axis=1)
    numbers = tf.stack([columns[f"number_{place}"] for place in range(NUMBERS)], axis=1)
    return {"ids": ids, "numbers": numbers}, tf.cast(columns["label"], tf.float32)[:, tf.newaxis]

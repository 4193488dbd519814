"""What a batched feed does with minibatches of columns, as CSV and Parquet give them."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from edlz.api.feeds import Mode

__all__ = ["features_and_label"]


def features_and_label(
    dataset: tf.data.Dataset,
    mode: str,
    features: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    label: str = "label",
    of_label: Callable[[Any], Any] = lambda values: tf.cast(values, tf.float32),
) -> tf.data.Dataset:
    """Return what a model's batched `feed` returns: (features, labels) of each minibatch, or features to predict.

    Parameters
    ----------
    dataset : of minibatches of columns by their names
    mode : str or Mode
    features : callable
        Columns of n rows -> the model's inputs.
    label : str
        The column of labels.  Rows to predict need none.
    of_label : callable
        Its values -> labels.
    """

    def parts(columns: dict[str, Any]) -> Any:
        rest = {name: values for name, values in columns.items() if name != label}
        inputs = features(rest)
        return inputs if mode == Mode.PREDICTION else (inputs, of_label(columns[label]))

    return dataset.map(parts)

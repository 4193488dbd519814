"""What a batched feed does with minibatches: of columns, as CSV and Parquet give them, and of serialised `tf.train.Example`s."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from edlz.api.feeds import Mode

__all__ = ["features_and_label", "parse_examples"]


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


def parse_examples(
    dataset: tf.data.Dataset,
    mode: str,
    schema: Mapping[str, Any],
    features: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    label: str = "label",
) -> tf.data.Dataset:
    """Return what a model's batched `feed` returns: (features, labels) of each minibatch, or features to predict.

    Records are not shuffled: edlz does that in each task.

    Parameters
    ----------
    dataset : of minibatches of serialised `tf.train.Example` records
    mode : str or Mode
    schema : mapping of names to tf.io features
        What is in a record beside the label.
    features : callable
        Parsed columns of n records -> the model's inputs; every tensor has n rows.
    label : str
        An integer, 0 or 1.  Records to predict need none.
    """
    is_labelled = mode != Mode.PREDICTION
    columns = {**schema, label: tf.io.FixedLenFeature([], tf.int64)} if is_labelled else dict(schema)

    def parse(records: tf.Tensor) -> Any:
        parsed = tf.io.parse_example(records, columns)
        labels = parsed.pop(label, None)
        inputs = features(parsed)
        return (inputs, tf.cast(labels, tf.float32)) if is_labelled else inputs

    return dataset.map(parse)

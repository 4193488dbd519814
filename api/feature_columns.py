"""TensorFlow's feature columns in Keras models: the layer `DenseFeatures`, whose embeddings parameter servers keep.

Keras 3 has no such layer any more; `tf.feature_column` still makes the columns.  What is here turns them into the
input of a network, for model modules of ElasticDL that are written with them.  New models: layers of Keras and of
`edlz.api.preprocessing`.
"""

import collections
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

# Public in `tf.feature_column` are functions that make columns; what computes them has no public name.
from tensorflow.python.feature_column import feature_column_v2 as columns_of_tensorflow
from tensorflow.python.feature_column.serialization import (
    deserialize_feature_columns,
    register_feature_column,
    serialize_feature_column,
    serialize_feature_columns,
)

from edlz.api.embedding import Embedding
from edlz.api.preprocessing.column_layer import ColumnLayer

__all__ = ["DenseFeatures", "concatenated_categorical_column"]

_INITIALIZERS = {
    "Constant": ("value",),
    "Ones": (),
    "RandomNormal": ("mean", "stddev"),
    "RandomUniform": ("minval", "maxval"),
    "TruncatedNormal": ("mean", "stddev"),
    "Zeros": (),
}


@keras.saving.register_keras_serializable(package="edlz")
class DenseFeatures(ColumnLayer):
    """Turns named features into one dense tensor, as a list of feature columns says.

    Columns are computed, and stand in the output, in the order of their names.  The table of an embedding column
    is an `edlz.api.Embedding`, with the column's combiner and initializer: its rows are on the parameter servers.

    Parameters
    ----------
    feature_columns : sequence of feature columns
        Dense ones: numeric, bucketized, indicator and embedding columns.

    Raises
    ------
    TypeError
        If a column is not dense: a categorical one needs `indicator_column` or `embedding_column` around it.
    ValueError
        If two columns have one name, or an embedding column asks for what parameter servers do not do.

    Examples
    --------
    >>> age = tf.feature_column.numeric_column("age")
    >>> city = tf.feature_column.categorical_column_with_hash_bucket("city", 1000)
    >>> layer = DenseFeatures([age, tf.feature_column.embedding_column(city, 8)])
    >>> inputs = {"age": keras.Input((1,)), "city": keras.Input((1,), dtype="string")}
    >>> layer(inputs).shape
    (None, 9)
    """

    def __init__(self, feature_columns: Sequence[Any], name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self._columns = _checked(self.name, feature_columns)
        self._resources = _Resources()
        self._tables = {
            column.name: _table(self.name, column)
            for column in self._columns
            if isinstance(column, columns_of_tensorflow.EmbeddingColumn)
        }

    def call(self, features: Mapping[str, Any]) -> Any:
        cache = columns_of_tensorflow.FeatureTransformationCache(dict(features))
        parts = [tf.reshape(self._part(column, cache), [-1, _width(column)]) for column in self._columns]
        return tf.concat([tf.cast(part, self.compute_dtype) for part in parts], axis=1)

    def compute_output_spec(self, features: Mapping[str, Any]) -> Any:
        missing = sorted(self._keys() - set(features))
        if missing:
            raise ValueError(
                f"{self.name}: no feature {missing[0]!r}; there are {', '.join(sorted(features))}"
            )
        batch = next(iter(features.values())).shape[0]
        return keras.KerasTensor((batch, sum(map(_width, self._columns))), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "feature_columns": serialize_feature_columns(self._columns)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "DenseFeatures":
        columns = deserialize_feature_columns(config["feature_columns"])
        return cls(**{**config, "feature_columns": columns})

    def _part(self, column: Any, cache: Any) -> Any:
        if column.name not in self._tables:
            return column.get_dense_tensor(cache, self._resources)
        pair = column.categorical_column.get_sparse_tensors(cache, self._resources)
        return self._tables[column.name](pair.id_tensor, weights=pair.weight_tensor)

    def _keys(self) -> set[str]:
        return {key for column in self._columns for key in column.parse_example_spec}


@register_feature_column
class _ConcatenatedColumn(
    columns_of_tensorflow.CategoricalColumn,  # type: ignore[misc]
    collections.namedtuple("_ConcatenatedColumn", ("categorical_columns",)),
):
    """See `concatenated_categorical_column`."""

    @property
    def _is_v2_column(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return "_C_".join(column.name for column in self.categorical_columns)

    @property
    def num_buckets(self) -> int:
        return sum(column.num_buckets for column in self.categorical_columns)

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        parts = (column.parse_example_spec for column in self.categorical_columns)
        return {key: about for part in parts for key, about in part.items()}

    _parse_example_spec = parse_example_spec

    @property
    def parents(self) -> list[Any]:
        return list(self.categorical_columns)

    def transform_feature(self, cache: Any, state_manager: Any) -> tf.SparseTensor:
        return self.get_sparse_tensors(cache, state_manager).id_tensor

    def get_sparse_tensors(self, cache: Any, state_manager: Any) -> Any:
        pairs = [column.get_sparse_tensors(cache, state_manager) for column in self.categorical_columns]
        ids, offset = [], 0
        for column, pair in zip(self.categorical_columns, pairs, strict=True):
            found = tf.cast(pair.id_tensor.values, tf.int64)
            ids.append(pair.id_tensor.with_values(tf.where(found < 0, found, found + offset)))
            offset += column.num_buckets
        is_weighted = any(pair.weight_tensor is not None for pair in pairs)
        weights = tf.sparse.concat(1, [_weights(pair) for pair in pairs]) if is_weighted else None
        return self.IdWeightPair(tf.sparse.concat(1, ids), weights)

    def get_config(self) -> dict[str, Any]:
        return {"categorical_columns": [serialize_feature_column(c) for c in self.categorical_columns]}

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None, columns_by_name: Any = None) -> Any:
        columns = deserialize_feature_columns(config["categorical_columns"], custom_objects)
        return cls(tuple(columns))


def concatenated_categorical_column(categorical_columns: Sequence[Any]) -> Any:
    """Return a categorical column with the ids of several, each in a range of its own.

    The ids of a column begin where those of the columns before it end, so that one embedding column around it
    gives all of them rows in one table.

    Parameters
    ----------
    categorical_columns : sequence of categorical columns

    Raises
    ------
    ValueError
        If there is none.
    TypeError
        If one of them is not categorical.
    """
    if not categorical_columns:
        raise ValueError("concatenated_categorical_column got no columns")
    for column in categorical_columns:
        if not isinstance(column, columns_of_tensorflow.CategoricalColumn):
            raise TypeError(f"{_shown(column)} is no categorical column, and has no ids to concatenate")
    return _ConcatenatedColumn(tuple(categorical_columns))


class _Resources(columns_of_tensorflow.StateManager, tf.Module):  # type: ignore[misc]
    """Where columns with a vocabulary keep its table: of the layer, so that it is part of what is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Any] = {}

    def add_resource(self, column: Any, name: str, resource: Any) -> None:
        self.found[f"{column.name}/{name}"] = resource

    def has_resource(self, column: Any, name: str) -> bool:
        return f"{column.name}/{name}" in self.found

    def get_resource(self, column: Any, name: str) -> Any:
        return self.found[f"{column.name}/{name}"]


def _checked(layer: str, columns: Sequence[Any]) -> list[Any]:
    """Return columns by name, having checked that each is dense and has a name of its own."""
    for column in columns:
        if not isinstance(column, columns_of_tensorflow.DenseColumn):
            is_categorical = isinstance(column, columns_of_tensorflow.CategoricalColumn)
            help_ = ": put indicator_column() or embedding_column() around it" if is_categorical else ""
            raise TypeError(f"{layer}: {_shown(column)} is no dense column{help_}")
    found = sorted(columns, key=lambda column: str(column.name))
    for column, after in itertools.pairwise(found):
        if column.name == after.name:
            raise ValueError(f"{layer}: two columns have the name {column.name!r}")
    if not found:
        raise ValueError(f"{layer} got no feature columns")
    return found


def _table(layer: str, column: Any) -> Embedding:
    for option, fine in (("max_norm", None), ("ckpt_to_load_from", None), ("trainable", True)):
        given = getattr(column, option)
        if given != fine:
            raise ValueError(
                f"{layer}: column {column.name} has {option}={given}; the rows of a job know no such thing"
            )
    initializer = _initializer(layer, column.name, column.initializer)
    return Embedding(
        column.dimension, embeddings_initializer=initializer, combiner=column.combiner, name=column.name
    )


def _initializer(layer: str, column: str, initializer: Any) -> Any:
    """Return the initializer of Keras that draws as one of TensorFlow does."""
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer
    kind = type(initializer).__name__.removesuffix("Initializer")
    if kind not in _INITIALIZERS:
        raise ValueError(f"{layer}: column {column} has initializer {kind}; take one of keras.initializers")
    given = initializer.get_config()
    return getattr(keras.initializers, kind)(**{name: given[name] for name in _INITIALIZERS[kind]})


def _width(column: Any) -> int:
    return int(column.variable_shape.num_elements())


def _weights(pair: Any) -> tf.SparseTensor:
    if pair.weight_tensor is not None:
        return pair.weight_tensor
    return pair.id_tensor.with_values(tf.ones_like(pair.id_tensor.values, tf.float32))


def _shown(column: Any) -> str:
    return f"column {column.name}" if hasattr(column, "name") else repr(column)

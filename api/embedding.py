"""The embedding layer for ids of any number, whose rows live outside of the model.

The layer knows what a lookup means (shapes, combiners, masks); where rows come from is its `source`'s
affair.  In a job the worker sets one; there is none in plain Keras.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

__all__ = ["COMBINERS", "Embedding", "Source", "SparseEmbedding", "least_bound", "rows_like"]

COMBINERS = ("sum", "mean", "sqrtn")
_EXACT_BELOW = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24, "float64": 2**53}  # 2**p + 1 is rounded

Source = Callable[[Any, Any], Any]
"""(layer, int64 ids of shape (n,)) -> float32 rows of shape (n, output_dim)."""


@keras.saving.register_keras_serializable(package="edlz")
class Embedding(keras.layers.Layer):  # type: ignore[misc]
    """Turns integer ids into rows of a table that is kept by the parameter servers.

    The table has no size: a row exists from its first gradient on, and ids are any int64.  What it gives
    depends on the ids:

    - dense, of any shape: one row for each id, shape `(*ids.shape, output_dim)`.
    - a `tf.SparseTensor` of rank 2: the rows of each example combined, shape `(batch, output_dim)`.
      Negative ids are left out; an example without ids gives zeros.
    - a `tf.RaggedTensor`: of rank 2 and with a combiner, as sparse (negative ids are ids here); without a
      combiner, a ragged tensor with one row for each id.

    Parameters
    ----------
    output_dim : int
        Length of a row.
    input_dim : int, optional
        Ids must then be in [0, input_dim); without it any int64 is an id.
    embeddings_initializer : str or keras.initializers.Initializer
        A random distribution or a constant: an untrained row follows from the job's seed and its id.
        Those that depend on the table's size (glorot, he, lecun) need `input_dim`.
    mask_zero : bool
        Whether id 0 is padding, as in `keras.layers.Embedding`; for dense ids.
    combiner : {"sum", "mean", "sqrtn"}, optional
        How the rows of one example become one.  With weights: the sum of `weight * row`, divided by
        nothing, by the sum of weights, or by the root of the sum of their squares.
    optimizer : str or keras.optimizers.Optimizer, optional
        For this table, in place of the model's.
    embeddings_regularizer, embeddings_constraint
        Refused: they are of a whole table, and no process holds one.

    Examples
    --------
    >>> ids = keras.Input((None,), dtype="int64", sparse=True)
    >>> pooled = Embedding(16, combiner="mean", name="words")(ids)

    Weights have the form of the ids: `layer(ids, weights=weights)`.

    Attributes
    ----------
    ids_below : int or None
        What ids must be smaller than to be told apart, once they have come as floating-point numbers, as those of a
        `keras.Input` without a `dtype` do.
    """

    default_source: ClassVar[Source | None] = None  # of layers that have none of their own

    def __init__(
        self,
        output_dim: int,
        input_dim: int | None = None,
        embeddings_initializer: Any = "uniform",
        mask_zero: bool = False,
        combiner: str | None = None,
        optimizer: Any = None,
        name: str | None = None,
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        input_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        _refuse("embeddings_regularizer", embeddings_regularizer, "weight_decay in the table's optimizer")
        _refuse("embeddings_constraint", embeddings_constraint, "clipping the layer's output")
        if combiner is not None and combiner not in COMBINERS:
            raise ValueError(f"combiner={combiner!r} is none of {', '.join(COMBINERS)}")
        self.output_dim = _positive("output_dim", output_dim)
        self.input_dim = _positive("input_dim", input_dim) if input_dim else None  # 0 says the same as None
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.mask_zero = self.supports_masking = bool(mask_zero)
        self.combiner = combiner
        self.optimizer = None if optimizer is None else keras.optimizers.get(optimizer)
        self.autocast = False  # ids are not to be rounded to 16 bits
        self.source: Source | None = None
        self.ids_below: int | None = None

    def build(self, ids_shape: Any, weights_shape: Any = None) -> None:
        self.built = True

    def call(self, ids: Any, weights: Any = None) -> Any:
        if isinstance(ids, tf.SparseTensor):
            return self._pooled(*_sparse_parts(ids, weights))
        if isinstance(ids, tf.RaggedTensor):
            return self._ragged(ids, weights)
        if weights is not None:
            raise ValueError(f"{self.name}: weights={weights} need sparse or ragged ids, and a combiner")
        return keras.ops.cast(rows_like(self._rows(ids), ids, self.output_dim), self.compute_dtype)

    def compute_output_spec(self, ids: Any, weights: Any = None) -> Any:
        is_sparse, is_ragged = getattr(ids, "sparse", False), getattr(ids, "ragged", False)
        if is_sparse or (is_ragged and self.combiner is not None):
            self._check_pooling(len(ids.shape))
            return keras.KerasTensor((ids.shape[0], self.output_dim), dtype=self.compute_dtype)
        shape = (*ids.shape, self.output_dim)
        return keras.KerasTensor(shape, dtype=self.compute_dtype, ragged=is_ragged)

    def compute_output_shape(self, ids_shape: Any, weights_shape: Any = None) -> Any:
        return (*ids_shape, self.output_dim)

    def compute_mask(self, ids: Any, mask: Any = None) -> Any:
        if not self.mask_zero or isinstance(ids, tf.SparseTensor | tf.RaggedTensor):
            return None
        return keras.ops.not_equal(ids, 0)

    def get_config(self) -> dict[str, Any]:
        optimizer = None if self.optimizer is None else keras.optimizers.serialize(self.optimizer)
        return {
            **super().get_config(),
            "output_dim": self.output_dim,
            "input_dim": self.input_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "mask_zero": self.mask_zero,
            "combiner": self.combiner,
            "optimizer": optimizer,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Embedding":
        return cls(**config)

    def _rows(self, ids: Any) -> Any:
        """Look up flat ids, of whatever type and shape they are."""
        source = self.source or Embedding.default_source
        if source is None:
            raise RuntimeError(
                f"layer {self.name} has no rows: those of edlz.api.Embedding are kept by a job's parameter "
                "servers. Run the model with `edlz train` (where the layer must be an attribute of the model), and "
                "use keras.layers.Embedding outside of jobs."
            )
        if not (ids.dtype.is_integer or ids.dtype.is_floating):
            raise TypeError(f"layer {self.name} got ids of type {ids.dtype.name}: hash or number them first")
        self.ids_below = least_bound(self.ids_below, ids.dtype)
        return source(self, tf.reshape(tf.cast(ids, tf.int64), [-1]))

    def _ragged(self, ids: Any, weights: Any) -> Any:
        if self.combiner is not None:
            self._check_pooling(ids.shape.rank)
            given = None if weights is None else weights.flat_values
            return self._pooled(ids.flat_values, ids.value_rowids(), ids.nrows(), given)
        if weights is not None:
            raise ValueError(f"{self.name}: weights need a combiner, which says what becomes of them")
        rows = rows_like(self._rows(ids.flat_values), ids.flat_values, self.output_dim)
        return ids.with_flat_values(tf.cast(rows, self.compute_dtype))

    def _pooled(self, ids: Any, examples: Any, count: Any, weights: Any) -> Any:
        """Combine the rows of each example.

        Parameters
        ----------
        ids, examples : (n,) tensors: an id, and the example that it belongs to
        count : scalar tensor, number of examples
        weights : (n,) tensor, or None
        """
        self._check_pooling(2)
        rows = self._rows(ids)
        weight = tf.ones_like(examples, tf.float32) if weights is None else tf.cast(weights, tf.float32)
        if weights is not None:
            rows = rows * weight[:, tf.newaxis]
        total = tf.math.unsorted_segment_sum(rows, examples, count)
        if self.combiner != "sum":
            share = weight if self.combiner == "mean" else tf.square(weight)
            share = tf.math.unsorted_segment_sum(share, examples, count)[:, tf.newaxis]
            total = tf.math.divide_no_nan(total, share if self.combiner == "mean" else tf.sqrt(share))
        return tf.cast(tf.ensure_shape(total, [None, self.output_dim]), self.compute_dtype)

    def _check_pooling(self, rank: int) -> None:
        if self.combiner is None:
            raise ValueError(
                f"layer {self.name} got sparse ids: set combiner to one of {', '.join(COMBINERS)}"
            )
        if self.mask_zero:
            raise ValueError(
                f"layer {self.name} combines the ids of each example: mask_zero=True has no meaning there"
            )
        if rank != 2:
            raise ValueError(f"layer {self.name} got ids of rank {rank}: a combiner takes (batch, ids)")


def SparseEmbedding(  # noqa: N802
    input_dim: int,
    output_dim: int,
    embeddings_initializer: Any = "uniform",
    combiner: str = "mean",
    **kwargs: Any,
) -> Embedding:
    """Return an `Embedding` that combines the rows of an example, by the arguments of ElasticDL's layer.

    Parameters
    ----------
    input_dim, output_dim : int
        Number and length of rows; ids, sparse or ragged, are in [0, input_dim).
    embeddings_initializer, combiner, **kwargs
        Of `Embedding`.
    """
    return Embedding(output_dim, input_dim, embeddings_initializer, combiner=combiner, **kwargs)


def least_bound(bound: int | None, dtype: Any) -> int | None:
    """Return the smaller one of a bound and that of a type: what whole numbers are exact below; None for any."""
    if not dtype.is_floating:
        return bound
    own = _EXACT_BELOW[dtype.name]
    return own if bound is None else min(bound, own)


def rows_like(rows: Any, ids: Any, output_dim: int) -> Any:
    """Return flat rows in the shape of the ids that they belong to.

    Parameters
    ----------
    rows : tensor, shape (n, output_dim)
    ids : tensor of n ids, of any shape

    Returns
    -------
    tensor, shape (*ids.shape, output_dim)
    """
    dims = ids.shape.as_list() if ids.shape.rank is not None else [None, None]
    if dims.count(None) > 1 or 0 in dims:
        shape = tf.concat([tf.shape(ids), [output_dim]], 0)
        return tf.ensure_shape(tf.reshape(rows, shape), [*ids.shape, output_dim])
    return tf.reshape(rows, [*(-1 if dim is None else dim for dim in dims), output_dim])


def _sparse_parts(ids: Any, weights: Any) -> tuple[Any, Any, Any, Any]:
    """Flat ids, their examples, the number of examples, flat weights; without negative ids."""
    is_id = ids.values >= 0
    values, examples = tf.boolean_mask(ids.values, is_id), tf.boolean_mask(ids.indices[:, 0], is_id)
    given = None if weights is None else tf.boolean_mask(weights.values, is_id)
    return values, examples, ids.dense_shape[0], given


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name}={value!r} is not a positive integer")
    return value


def _refuse(name: str, value: Any, instead: str) -> None:
    if value is not None:
        raise ValueError(
            f"edlz.api.Embedding has no {name} (got {value!r}): nobody holds the whole table; use {instead}"
        )

"""Large `keras.layers.Embedding`s, which become embedding tables while the user's model is built.

Such a layer is never given its weight: `build` turns the object into a `TableEmbedding`, which takes its rows
from a source.  If something turns out to need the weight after all (it is tied, or assigned), it is made
then, with the values that it would have had.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from keras.src.backend import name_scope

from edlz.api.embedding import Embedding, Source, least_bound, rows_like
from edlz.core_ext.table import MAX_DIM
from edlz.services.errors import ModelError
from edlz.services.worker.engine.model.initializers import initializer_spec
from edlz.services.worker.engine.tensorflow.backend import keras, tf

__all__ = ["TableEmbedding", "give_weight", "keep_dense", "replacing"]

logger = logging.getLogger(__name__)

_Plain = keras.layers.Embedding
_plain_build = _Plain.build
_FLOAT32_BYTES = 4


class TableEmbedding(keras.layers.Embedding):  # type: ignore[misc]
    """A `keras.layers.Embedding` without its weight; ids mean what they mean there.

    Objects come to be of this class by `build`, never by its constructor.
    """

    source: Source | None = None
    optimizer: Any = None  # a plain Embedding has none of its own
    ids_below: int | None = None

    def call(self, inputs: Any) -> Any:
        if isinstance(inputs, tf.SparseTensor):
            inputs = tf.sparse.to_dense(inputs)
        if isinstance(inputs, tf.RaggedTensor):
            return inputs.with_flat_values(self._rows(inputs.flat_values))
        return self._rows(inputs)

    @property
    def embeddings(self) -> Any:
        keep_dense(self, "its weight is used outside of lookups")
        return self.embeddings

    def set_weights(self, weights: Any) -> None:
        keep_dense(self, "its weight is set")
        self.set_weights(weights)

    def load_own_variables(self, store: Any) -> None:
        keep_dense(self, "its weight is loaded")
        self.load_own_variables(store)

    def enable_lora(self, *args: Any, **kwargs: Any) -> None:
        keep_dense(self, "it has lora")
        self.enable_lora(*args, **kwargs)

    def _rows(self, inputs: Any) -> Any:
        ids = tf.convert_to_tensor(inputs)
        self.ids_below = least_bound(self.ids_below, ids.dtype)
        if ids.dtype not in (tf.int32, tf.int64):
            ids = tf.cast(ids, tf.int32)
        ids = tf.cast(ids, tf.int64)
        flat = tf.reshape(tf.where(ids < 0, ids + self.input_dim, ids), [-1])  # -1 is the last row
        source = self.source or Embedding.default_source
        if source is None:
            raise RuntimeError(f"layer {self.name} is called outside of the job that holds its rows")
        return tf.cast(rows_like(source(self, flat), ids, self.output_dim), self.compute_dtype)


@contextmanager
def replacing(threshold_bytes: int) -> Iterator[None]:
    """While this lasts, plain embeddings above a size are built as tables.

    Parameters
    ----------
    threshold_bytes : int
        A table of exactly this size stays a weight of the model.
    """

    def build(self: Any, input_shape: Any = None) -> None:
        size_bytes = self.input_dim * self.output_dim * _FLOAT32_BYTES
        if self.built or size_bytes <= threshold_bytes:
            _plain_build(self, input_shape)
        elif reason := _obstacle(self):
            _log(self, reason)
            _plain_build(self, input_shape)
        else:
            object.__setattr__(self, "__class__", TableEmbedding)

    _Plain.build = build
    try:
        yield
    finally:
        _Plain.build = _plain_build


def keep_dense(layer: TableEmbedding, reason: str) -> None:
    """Give a table back to its model, as the weight that a plain embedding has.

    Parameters
    ----------
    reason : str
        For the log: `its weight is ...`.
    """
    _log(layer, reason)
    give_weight(layer)


def give_weight(layer: TableEmbedding) -> None:
    """Make the weight of a table, with the values that it would have begun with."""
    object.__setattr__(layer, "__class__", _Plain)
    layer._tracker.unlock()
    # The scope gives the weight the path that it would have had.
    scope = name_scope(layer.name, caller=layer, override_parent=layer._parent_path)
    with tf.init_scope(), scope:
        layer.built = False
        _plain_build(layer)
    layer._lock_state()


def _obstacle(layer: Any) -> str:
    """Return why a plain embedding cannot be a table, or nothing."""
    if type(layer) not in (_Plain, TableEmbedding):
        return f"{type(layer).__name__} is a subclass of it"
    options = ("embeddings_constraint", "embeddings_regularizer", "lora_rank", "quantization_mode")
    for option in options:
        if getattr(layer, option, None):
            return f"it has {option}"
    if not layer.trainable:
        return "it is not trained"
    if layer.output_dim > MAX_DIM:
        return f"its rows are longer than {MAX_DIM:,}"
    if layer.variable_dtype != "float32":
        return f"its weight is {layer.variable_dtype}"
    try:
        initializer_spec(layer.embeddings_initializer, layer.input_dim, layer.output_dim)
    except ModelError as e:
        return e.message
    return ""


def _log(layer: Any, reason: str) -> None:
    size = layer.input_dim * layer.output_dim * _FLOAT32_BYTES / 1e6
    logger.info("layer=%s of %.1f MB stays among the dense parameters: %s", layer.name, size, reason)

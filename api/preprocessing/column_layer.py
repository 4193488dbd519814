"""The bases of preprocessing layers, which take texts, and ragged and sparse tensors, as they come."""

from abc import abstractmethod
from typing import Any

import keras
import tensorflow as tf

__all__ = ["ColumnLayer", "ValueLayer", "spec_like"]


class ColumnLayer(keras.layers.Layer):  # type: ignore[misc]
    """A layer without weights whose input is not converted: neither its type nor its form."""

    def __init__(self, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.autocast = False  # float64 columns, and counts as floats, are not to be rounded on the way in
        self.supports_jit = False  # texts and tables have no place there

    def build(self, input_shape: Any) -> None:
        self.built = True


class ValueLayer(ColumnLayer):
    """Maps the values of a dense, ragged or sparse tensor, one by one, to a tensor of the same form.

    Subclasses say what becomes of a flat tensor of values (`_mapped`), and of their type (`_type_of`).
    """

    def call(self, inputs: Any) -> Any:
        if isinstance(inputs, tf.SparseTensor):
            return inputs.with_values(self._mapped(inputs.values))
        if isinstance(inputs, tf.RaggedTensor):
            return inputs.with_flat_values(self._mapped(inputs.flat_values))
        return self._mapped(tf.convert_to_tensor(inputs))

    def compute_output_spec(self, inputs: Any) -> Any:
        return spec_like(inputs, inputs.shape, self._type_of(inputs.dtype))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    @abstractmethod
    def _mapped(self, values: tf.Tensor) -> tf.Tensor:
        """Return what becomes of values, of the same shape."""

    @abstractmethod
    def _type_of(self, dtype: str) -> str:
        """Return the name of the type that values of a type become."""


def spec_like(inputs: Any, shape: tuple[int | None, ...], dtype: str) -> Any:
    """Return the symbolic tensor of a shape and type, in the form (dense, ragged, sparse) of another."""
    is_ragged, is_sparse = getattr(inputs, "ragged", False), getattr(inputs, "sparse", False)
    return keras.KerasTensor(shape, dtype=dtype, sparse=is_sparse, ragged=is_ragged)

"""Layers that change the form of a tensor: to ragged, to sparse, several to one."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from edlz.api.preprocessing.column_layer import ColumnLayer, spec_like

__all__ = ["ConcatenateWithOffset", "ToRagged", "ToSparse"]

_MISSING_TEXT, _MISSING_NUMBER = "", -1


class _Lists(ColumnLayer):
    """Rows of a tensor as lists of values, without those that stand for a missing one."""

    def __init__(self, sep: str | None, ignore_value: Any, name: str | None, kwargs: dict[str, Any]) -> None:
        super().__init__(name=name, **kwargs)
        if sep == "":
            raise ValueError(f"{self.name}: sep is empty; give a text to split by, or None")
        self.sep = sep
        self.ignore_value = ignore_value

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "sep": self.sep, "ignore_value": self.ignore_value}

    def _lists(self, inputs: Any) -> tf.RaggedTensor:
        rows = self._split(_rows(self.name, inputs))
        return tf.ragged.boolean_mask(rows, rows.with_flat_values(self._is_value(rows.flat_values)))

    def _split(self, rows: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return rows whose texts are split; of each row the pieces stay one list."""
        if rows.dtype != tf.string or self.sep is None:
            return rows
        pieces = tf.strings.split(rows.flat_values, self.sep)
        return rows.with_flat_values(pieces).merge_dims(1, 2)

    def _is_value(self, values: tf.Tensor) -> tf.Tensor:
        missing = self.ignore_value
        if missing is None:
            missing = _MISSING_TEXT if values.dtype == tf.string else _MISSING_NUMBER
        return values != tf.cast(missing, values.dtype)


@keras.saving.register_keras_serializable(package="edlz")
class ToRagged(_Lists):
    """Makes a ragged tensor: lists of texts from texts with separators, or lists without padding.

    Parameters
    ----------
    sep : str, optional
        What separates the values of a text.  None: a text is one value.
    ignore_value : str, int or float, optional
        A value that stands for none, left out; without it "" of texts and -1 of numbers.

    Examples
    --------
    >>> ToRagged(sep="|")(tf.constant(["a|b", "", "c"])).to_list()
    [[b'a', b'b'], [], [b'c']]
    >>> ToRagged()(tf.constant([[3, -1, 5], [-1, -1, -1]])).to_list()
    [[3, 5], []]
    """

    def __init__(
        self, sep: str | None = ",", ignore_value: Any = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(sep, ignore_value, name, kwargs)

    def call(self, inputs: Any) -> tf.RaggedTensor:
        return self._lists(inputs)

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor((inputs.shape[0], None), dtype=inputs.dtype, ragged=True)


@keras.saving.register_keras_serializable(package="edlz")
class ToSparse(_Lists):
    """Makes a sparse tensor: the values of each row, from its first place on, without missing ones.

    Parameters
    ----------
    ignore_value : str, int or float, optional
        A value that stands for none, left out; without it "" of texts and -1 of numbers.
    sep : str, optional
        What separates the values of a text.  Without it a text is one value.

    Examples
    --------
    >>> ToSparse()(tf.constant([["a", ""], ["", "c"]])).values.numpy().tolist()
    [b'a', b'c']
    """

    def __init__(
        self, ignore_value: Any = None, sep: str | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(sep, ignore_value, name, kwargs)

    def call(self, inputs: Any) -> tf.SparseTensor:
        return self._lists(inputs).to_sparse()

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor((inputs.shape[0], None), dtype=inputs.dtype, sparse=True)


@keras.saving.register_keras_serializable(package="edlz")
class ConcatenateWithOffset(ColumnLayer):
    """Joins columns of ids into one whose ids do not meet: `x_i + offset_i`, side by side.

    With the numbers of ids of the columns before it as its offset, each column has rows of its own in one table.

    Parameters
    ----------
    offsets : sequence of int, optional
        One for each input.  Without it the inputs are joined as they are.
    axis : int
        Along which they are joined.

    Notes
    -----
    A negative id stands for a missing one, and stays as it is.

    Examples
    --------
    >>> ConcatenateWithOffset([0, 10])([tf.constant([[1], [2]]), tf.constant([[0], [-1]])]).numpy().tolist()
    [[1, 10], [2, -1]]
    """

    def __init__(
        self,
        offsets: Sequence[int] | None = None,
        axis: int = -1,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.offsets = None if offsets is None else [int(offset) for offset in offsets]
        self.axis = int(axis)

    def call(self, inputs: Sequence[Any]) -> Any:
        offsets = self._offsets_of(inputs)
        moved = [_moved(self.name, ids, offset) for ids, offset in zip(inputs, offsets, strict=True)]
        forms = {type(ids) for ids in moved if isinstance(ids, tf.SparseTensor | tf.RaggedTensor)}
        is_mixed = len(forms) > 1 or (forms and any(type(ids) not in forms for ids in moved))
        if is_mixed:
            raise TypeError(
                f"{self.name}: dense, ragged and sparse ids do not mix; ToRagged makes them alike"
            )
        if tf.SparseTensor in forms:
            return tf.sparse.concat(self.axis, moved)
        return tf.concat(moved, self.axis)

    def compute_output_spec(self, inputs: Sequence[Any]) -> Any:
        self._offsets_of(inputs)
        shape = list(inputs[0].shape)
        lengths = [ids.shape[self.axis] for ids in inputs]
        shape[self.axis] = None if None in lengths else sum(lengths)
        return spec_like(inputs[0], tuple(shape), "int64")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "offsets": self.offsets, "axis": self.axis}

    def _offsets_of(self, inputs: Sequence[Any]) -> list[int]:
        if self.offsets is None:
            return [0] * len(inputs)
        if len(self.offsets) != len(inputs):
            raise ValueError(f"{self.name} has {len(self.offsets)} offsets and got {len(inputs)} inputs")
        return self.offsets


def _rows(name: str, inputs: Any) -> tf.RaggedTensor:
    """Return a tensor of any form as rows: a vector's are of one value each."""
    if isinstance(inputs, tf.SparseTensor):
        inputs = tf.RaggedTensor.from_sparse(inputs)
    rank = (
        inputs.shape.rank if isinstance(inputs, tf.RaggedTensor) else len(tf.convert_to_tensor(inputs).shape)
    )
    if rank not in (1, 2):
        raise ValueError(f"{name} got a tensor of rank {rank}: it takes (batch,) or (batch, values)")
    if isinstance(inputs, tf.RaggedTensor):
        return inputs
    dense = tf.convert_to_tensor(inputs)
    return tf.RaggedTensor.from_tensor(dense[:, tf.newaxis] if rank == 1 else dense)


def _moved(name: str, ids: Any, offset: int) -> Any:
    if isinstance(ids, tf.SparseTensor):
        return ids.with_values(_moved(name, ids.values, offset))
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(_moved(name, ids.flat_values, offset))
    ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer:
        raise TypeError(
            f"{name} got ids of type {ids.dtype.name}: number them first, with IndexLookup for instance"
        )
    ids = tf.cast(ids, tf.int64)
    return tf.where(ids < 0, ids, ids + offset)

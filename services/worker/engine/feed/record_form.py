"""What records are as tensors: byte strings, or columns; the plan says it, for every task alike."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.api.readers import Metadata
from edlz.core_ext.memory import aligned_empty
from edlz.services.inputs.reading.records import Columns, Records
from edlz.services.protocol.plan import Column, DataSource
from edlz.services.worker.engine.tensorflow.backend import tf

__all__ = ["BYTES", "RecordForm"]


_MOST_SHOWN = 4  # columns in an error


class RecordForm:
    """The form of a source's records.

    Parameters
    ----------
    source : DataSource, optional
        None: byte strings.
    metadata : optional
        What the feed gets as its third argument; by default what the columns are.
    """

    def __init__(self, source: DataSource | None = None, metadata: Any = None) -> None:
        self._columns = source.columns if source is not None else ()
        self._form = source.form if source is not None else "bytes"
        self._metadata = metadata
        self._packs = _packs(self._columns)

    @property
    def is_bytes(self) -> bool:
        return self._form == "bytes"

    @property
    def metadata(self) -> Any:
        """What is known of the columns."""
        if self._metadata is not None:
            return self._metadata
        if not self._columns:
            return Metadata()
        names = [column.name for column in self._columns]
        return Metadata(names, {column.name: tf.as_dtype(column.kind) for column in self._columns})

    @property
    def text(self) -> str:
        """What one record is, as errors tell it."""
        if self.is_bytes:
            return "a byte string"
        kinds = [f"({each.width},) {each.kind}" if each.width else each.kind for each in self._columns]
        if self._form == "columns":
            kinds = [f"{each.name}: {kind}" for each, kind in zip(self._columns, kinds, strict=True)]
        more = [f"… {len(kinds) - _MOST_SHOWN} more"] if len(kinds) > _MOST_SHOWN else []
        shown = ", ".join([*kinds[:_MOST_SHOWN], *more])
        if self._form == "columns":
            return f"a dict of tensors {{{shown}}}"
        return f"a tuple of tensors ({shown})" if self._form == "tuple" else f"a tensor, {shown}"

    @property
    def dtypes(self) -> list[Any]:
        """TensorFlow's type of each array."""
        return [tf.as_dtype(column.kind) for column in self._columns] or [tf.string]

    @property
    def nothing(self) -> Records:
        """No records."""
        if self.is_bytes:
            return []
        return Columns({column.name: _empty(column) for column in self._columns}, 0)

    def arrays(self, records: Records) -> list[npt.NDArray[Any]]:
        """Return the arrays of many records, each with one entry a record."""
        if isinstance(records, Columns):
            return [records.values[column.name] for column in self._columns]
        return [np.array(records, object)]

    @property
    def packed_dtypes(self) -> list[Any]:
        """TensorFlow's type of each packed array."""
        return [tf.as_dtype(self._columns[pack[0]].kind) for pack in self._packs] or [tf.string]

    def packed(self, records: Records) -> list[npt.NDArray[Any]]:
        """Return the arrays of many records, columns of numbers of one type as the rows of one array.

        On its way from Python an array costs TensorFlow the same, whatever its length.
        """
        arrays = self.arrays(records)
        return [_stacked([arrays[place] for place in pack]) for pack in self._packs] or arrays

    def unpacked(self, tensors: list[Any]) -> list[Any]:
        """Return the traced tensors of `arrays` from those of `packed`, with the shapes that they have."""
        if not self._packs:
            tensors[0].set_shape([None])
            return tensors
        found: dict[int, Any] = {}
        for pack, tensor in zip(self._packs, tensors, strict=True):
            width = self._columns[pack[0]].width
            if len(pack) == 1:
                tensor.set_shape([None, width] if width else [None])
                found[pack[0]] = tensor
                continue
            tensor.set_shape([len(pack), None])
            found.update(zip(pack, tf.unstack(tensor), strict=True))  # the same memory, where it is aligned
        return [found[place] for place in range(len(self._columns))]

    def structure(self, tensors: list[Any]) -> Any:
        """Return tensors as a feed knows them: by name, in a tuple, or the only one."""
        if self._form == "columns":
            return {column.name: tensor for column, tensor in zip(self._columns, tensors, strict=True)}
        return tuple(tensors) if self._form == "tuple" else tensors[0]

    def tensors(self, records: Records) -> Any:
        """Return the structure of records at hand."""
        pairs = zip(self.arrays(records), self.dtypes, strict=True)
        # A list, since an array of byte strings of no length has another type.
        return self.structure([tf.constant(a.tolist() if a.dtype == object else a, t) for a, t in pairs])

    def single(self, records: Records) -> list[Any]:
        """Return each record by itself, for a feed that takes a list of them."""
        if not isinstance(records, Columns):
            return list(records)
        rows = records.rows()
        if self._form == "columns":
            return list(rows)
        return [tuple(row.values()) if self._form == "tuple" else row["value"] for row in rows]


def _packs(columns: Sequence[Column]) -> list[list[int]]:
    """Return the places of columns that go together: numbers of one type, and each other column by itself."""

    def key(place: int) -> tuple[str, int]:
        column = columns[place]
        return (column.kind, -1) if not column.width and column.kind != "string" else (column.kind, place)

    return [list(pack) for _, pack in groupby(sorted(range(len(columns)), key=key), key)]


def _stacked(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0]
    block = aligned_empty(sum(map(len, arrays)), arrays[0].dtype)  # TensorFlow takes it as it is
    np.concatenate(arrays, out=block)
    return block.reshape(len(arrays), len(arrays[0]))


def _empty(column: Column) -> npt.NDArray[Any]:
    dtype = object if column.kind == "string" else column.kind
    return np.empty((0, column.width) if column.width else (0,), dtype)


BYTES = RecordForm()

"""What records are as tensors: byte strings, or columns; the plan says it, for every task alike."""

from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.api.readers import Metadata
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

    def set_shapes(self, tensors: list[Any]) -> None:
        """Tell traced tensors of any number of records their shapes."""
        for tensor, column in zip(tensors, self._columns or [None], strict=True):
            tensor.set_shape([None, column.width] if column is not None and column.width else [None])

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


BYTES = RecordForm()


def _empty(column: Column) -> npt.NDArray[Any]:
    dtype = object if column.kind == "string" else column.kind
    return np.empty((0, column.width) if column.width else (0,), dtype)

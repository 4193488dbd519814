"""A model's own reader of data, `custom_data_reader`: made, asked for its shards, and read by.

Owns the forms that a user's records come in; which records are read when is the plan's affair.
"""

import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from edlz.api.readers import Metadata, ReaderShard, ReaderTask
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import DataError, ModelError
from edlz.services.inputs.reading.params import READER_TYPE, parse_params
from edlz.services.inputs.reading.records import Columns, Order, Records
from edlz.services.protocol.plan import Column, ColumnKind, DataSource
from edlz.services.worker.engine.tensorflow.backend import tf
from edlz.services.worker.engine.user_code.user_code import UserCode, UserCodeError, describe

__all__ = ["CustomReader"]

_KINDS: dict[str, ColumnKind] = {
    "bool": "bool",
    "float32": "float32",
    "float64": "float64",
    "int32": "int32",
    "int64": "int64",
    "string": "string",
}
_MOST_SHOWN = 60
_TYPES_FORM = "records_output_types is the TensorFlow type of a record, a dict or a tuple of types, or None for byte strings"
_SHARDS_FORM = "return {name: (first record, count)}, or a list of (name, first record, count)"


class CustomReader:
    """The user's reader of one flag's data; one thread at a time calls it.

    Parameters
    ----------
    make : callable
        The user's `custom_data_reader`.
    code : UserCode
    origin : str
        What the flag says.

    Raises
    ------
    ModelError
        If the user's code raises, or gives something else than a reader.
    """

    def __init__(self, make: Callable[..., Any], code: UserCode, config: JobConfig, origin: str) -> None:
        self._make, self._code, self._lock = make, code, threading.Lock()
        params = {k: v for k, v in parse_params(config.data_reader_params).values.items() if k != READER_TYPE}
        with code.running(f"{describe(make)}()", make):
            self._reader = make(data_origin=origin, records_per_task=config.records_per_task, **params)
        for name in ("create_shards", "read_records"):
            if not callable(getattr(self._reader, name, None)):
                raise UserCodeError(
                    f"{describe(make)}() gives {type(self._reader).__name__}, which has no {name}()",
                    "return an edlz.api.AbstractDataReader",
                    where=code.place(make),
                )

    @property
    def metadata(self) -> Any:
        """What the feed gets."""
        return getattr(self._reader, "metadata", None) or Metadata()

    @property
    def default_feed(self) -> Callable[..., Any] | None:
        """The feed for a model that has none, if the reader brings one."""
        found = getattr(self._reader, "default_feed", None)
        if found is None:
            return None
        with self._code.running("default_feed of the model's reader", self._make):
            made = found() if callable(found) else found
        return made if callable(made) else None

    def shards(self) -> list[tuple[str, int, int]]:
        """Return what there is to read: names, first records and counts.

        Raises
        ------
        ModelError
            If the user's code raises, or gives something else.
        """
        with self._code.running("create_shards() of the model's reader", self._make):
            found = self._reader.create_shards()
        try:
            if isinstance(found, Mapping):
                triples = [(str(name), index(first), index(count)) for name, (first, count) in found.items()]
            else:
                triples = [(str(name), index(first), index(count)) for name, first, count in found]
        except (TypeError, ValueError) as e:
            raise self.error(f"create_shards() gives {found!r}", _SHARDS_FORM) from e
        for name, first, count in triples:
            if first < 0 or count < 0:
                raise self.error(
                    f'create_shards() gives {count} records from {first} on for "{name}"', _SHARDS_FORM
                )
        self._refuse_overlaps(triples)
        return triples

    def _refuse_overlaps(self, triples: list[tuple[str, int, int]]) -> None:
        ordered = sorted(triple for triple in triples if triple[2])
        for (name, first, count), (other, begin, _) in pairwise(ordered):
            if name == other and begin < first + count:
                raise self.error(
                    f'create_shards() gives record {begin} of "{name}" twice',
                    "let each record be in one shard",
                )

    def shape(self, name: str, first: int) -> tuple[str, tuple[Column, ...]]:
        """Return form and columns of the records, by the first of them.

        Raises
        ------
        ModelError
            If the user's code raises, or the record is not what it says that records are.
        """
        with self._code.running("read_records() of the model's reader", self._make):
            types = getattr(self._reader, "records_output_types", None)
            (record,) = self._records(name, first, 1)
        try:
            form, columns = self._form_of(types, record)
            _block([record], form, columns)
        except (TypeError, ValueError, KeyError, IndexError, OverflowError) as e:
            text = f"read_records() gives {_brief(record)}, and records_output_types is {_brief(types)}"
            raise self.error(f"{text}: {_reason(e)}", _TYPES_FORM) from e
        return form, columns

    def _form_of(self, types: Any, record: Any) -> tuple[str, tuple[Column, ...]]:
        is_one = not _is_structure(types)
        if types is None or (is_one and tf.as_dtype(types) == tf.string and _is_text(record)):
            return "bytes", ()
        if isinstance(types, Mapping):
            return "columns", tuple(self._column(key, types[key], record[key]) for key in types)
        if isinstance(types, list | tuple):
            pairs = zip(types, record, strict=True)
            return "tuple", tuple(self._column(str(i), *pair) for i, pair in enumerate(pairs))
        return "value", (self._column("value", types, record),)

    def open(self, name: str, source: DataSource) -> "CustomFile":
        """Return the shard of this name."""
        return CustomFile(self, name, source)

    def read(self, name: str, first: int, count: int, source: DataSource) -> Records:
        """Return the records of a range as the plan has them.

        Raises
        ------
        Exception
            Whatever the user's code raises.
        DataError
            If it gives other records than the plan says.
        """
        records = self._records(name, first, count)
        try:
            return _block(records, source.form, source.columns)
        except (TypeError, ValueError, KeyError, IndexError, OverflowError) as e:
            raise DataError(
                f'records {first} to {first + count - 1} of "{name}" are not of the types of the first one: {_reason(e)}',
                "records_output_types says what each of them is",
            ) from e

    def _records(self, name: str, first: int, count: int) -> list[Any]:
        task = ReaderTask(ReaderShard(name, first, first + count))
        with self._lock:
            records = list(self._reader.read_records(task))
        if len(records) != count:
            raise DataError(
                f'read_records() of the model\'s reader gives {len(records)} records for {count} from {first} on of "{name}"',
                "yield each record from task.start to before task.end once",
            )
        return records

    def _column(self, name: str, dtype: Any, value: Any) -> Column:
        kind = _KINDS.get(tf.as_dtype(dtype).name)
        if kind is None:
            raise self.error(
                f'records_output_types: "{name}" is {dtype!r}', f"a column is one of {', '.join(_KINDS)}"
            )
        array = np.asarray(value, object if kind == "string" else None)
        if array.ndim > 1:
            raise self.error(
                f'"{name}" of a record has the shape {array.shape}', "a value is one, or a vector"
            )
        return Column(name=name, kind=kind, width=len(array) if array.ndim else 0)

    def error(self, text: str, advice: str) -> ModelError:
        """Return the error that names the user's function."""
        return UserCodeError(text, advice, where=self._code.place(self._make))


class CustomFile:
    """A shard of a user's reader, as a Reader.  The first range that is read is read twice: it must be the same.

    Parameters
    ----------
    reader : CustomReader
    name : str
        Of the shard.
    source : DataSource
    """

    def __init__(self, reader: CustomReader, name: str, source: DataSource) -> None:
        self._reader, self._name, self._source = reader, name, source
        self._is_checked = False

    def __len__(self) -> int:
        raise TypeError("how many records a reader has is known to the plan alone")

    def read(self, first: int, count: int, order: Order | None = None) -> Records:
        records = self._reader.read(self._name, first, count, self._source)
        if not self._is_checked:
            self._is_checked = True
            if not _is_same(records, self._reader.read(self._name, first, count, self._source)):
                raise self._reader.error(
                    f'read_records() gives other records for the same range of "{self._name}" a second time',
                    "they must follow from shard, start and end alone: no random choice, no position that is kept",
                )
        if order is None:
            return records
        return records.take(order) if isinstance(records, Columns) else [records[i] for i in order.tolist()]

    def close(self) -> None:
        """There is nothing to let go of."""


def _block(records: list[Any], form: str, columns: tuple[Column, ...]) -> Records:
    """Return records as the plan has them; raise if they are not of these types."""
    if form == "bytes":
        return [_bytes(record) for record in records]
    if form == "columns":
        parts = [[record[column.name] for record in records] for column in columns]
    elif form == "tuple":
        parts = [list(part) for part in zip(*records, strict=True)] or [[] for _ in columns]
    else:
        parts = [records]
    pairs = zip(columns, parts, strict=True)
    return Columns({column.name: _array(column, part) for column, part in pairs}, len(records))


def _bytes(record: Any) -> bytes:
    if not _is_text(record):
        raise TypeError(f"{type(record).__name__} is no byte string")
    return record if isinstance(record, bytes) else str(record).encode()


def _reason(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _is_structure(types: Any) -> bool:
    return isinstance(types, Mapping | list | tuple)


def _is_text(record: Any) -> bool:
    return isinstance(record, bytes | str)


def _array(column: Column, values: list[Any]) -> npt.NDArray[Any]:
    shape = (len(values), column.width) if column.width else (len(values),)
    if column.kind != "string":
        array = np.array(values, column.kind).reshape(shape)
        if column.kind in ("int32", "int64"):
            _refuse_cut_off(array, values, column)
        return array
    array = np.empty(shape, object)
    array[...] = (
        [[_text(part) for part in value] if column.width else _text(value) for value in values]
        if values
        else []
    )
    return array


def _refuse_cut_off(array: npt.NDArray[Any], values: list[Any], column: Column) -> None:
    """Raise ValueError if a value is no whole number: NumPy would take what stands before the point."""
    given = np.array(values)
    if given.dtype.kind in "fu" and (array != given.reshape(array.shape)).any():
        row = int(np.argwhere(array != given.reshape(array.shape))[0][0])
        raise ValueError(f"{_brief(values[row])} would be {array[row].tolist()} in {column.kind}")


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _is_same(records: Records, again: Records) -> bool:
    if isinstance(records, Columns) and isinstance(again, Columns):
        pairs = zip(records.values.values(), again.values.values(), strict=True)
        return all(
            a.tobytes() == b.tobytes() if a.dtype != object else a.tolist() == b.tolist() for a, b in pairs
        )
    return records == again

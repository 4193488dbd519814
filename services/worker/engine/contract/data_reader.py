"""A model's own reader of data, `custom_data_reader`: made, asked for its shards, and read by.

Owns the forms that a user's records come in; which records are read when is the plan's affair.
"""

import threading
from collections.abc import Callable, Mapping
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
                triples = [(str(name), int(first), int(count)) for name, (first, count) in found.items()]
            else:
                triples = [(str(name), int(first), int(count)) for name, first, count in found]
        except (TypeError, ValueError) as e:
            raise self.error(f"create_shards() gives {found!r}", _SHARDS_FORM) from e
        for name, first, count in triples:
            if first < 0 or count < 0:
                raise self.error(
                    f'create_shards() gives {count} records from {first} on for "{name}"', _SHARDS_FORM
                )
        return triples

    def shape(self, name: str, first: int) -> tuple[str, tuple[Column, ...]]:
        """Return form and columns of the records, by the first of them."""
        with self._code.running("read_records() of the model's reader", self._make):
            types = getattr(self._reader, "records_output_types", None)
            (record,) = self._records(name, first, 1)
        if types is None or (
            not _is_structure(types) and tf.as_dtype(types) == tf.string and _is_text(record)
        ):
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
        if source.form == "bytes":
            return [record if isinstance(record, bytes) else str(record).encode() for record in records]
        try:
            if source.form == "columns":
                parts = [[record[column.name] for record in records] for column in source.columns]
            elif source.form == "tuple":
                parts = [list(part) for part in zip(*records, strict=True)] or [[] for _ in source.columns]
            else:
                parts = [records]
            pairs = zip(source.columns, parts, strict=True)
            return Columns({column.name: _array(column, part) for column, part in pairs}, count)
        except (TypeError, ValueError, KeyError, IndexError) as e:
            raise DataError(
                f'records {first} to {first + count - 1} of "{name}" are not of the types of the first one: {e}',
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


def _is_structure(types: Any) -> bool:
    return isinstance(types, Mapping | list | tuple)


def _is_text(record: Any) -> bool:
    return isinstance(record, bytes | str)


def _array(column: Column, values: list[Any]) -> npt.NDArray[Any]:
    shape = (len(values), column.width) if column.width else (len(values),)
    if column.kind != "string":
        return np.array(values, column.kind).reshape(shape)
    array = np.empty(shape, object)
    array[...] = (
        [[_text(part) for part in value] if column.width else _text(value) for value in values]
        if values
        else []
    )
    return array


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _is_same(records: Records, again: Records) -> bool:
    if isinstance(records, Columns) and isinstance(again, Columns):
        pairs = zip(records.values.values(), again.values.values(), strict=True)
        return all(
            a.tobytes() == b.tobytes() if a.dtype != object else a.tolist() == b.tolist() for a, b in pairs
        )
    return records == again

"""Parquet: row groups of columns, by the footers of the files.

A row group is decoded as a whole, and kept for the tasks that follow: tasks should not be far smaller than row groups.
"""

import struct
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edlz.api.first_bytes import advice_for, describe_start
from edlz.core_ext import scanning
from edlz.services.configuration.data_addresses import is_address
from edlz.services.errors import DataError
from edlz.services.inputs.reading.arrow import (
    KINDS,
    BadValueError,
    MissingValueError,
    kind_of,
    plain_numbers,
    require_pyarrow,
    to_numpy,
)
from edlz.services.inputs.reading.columns import MOST_SHOWN, default_for, defaults_of, refuse_missing
from edlz.services.inputs.reading.content import as_planned, look, open_stored
from edlz.services.inputs.reading.format import Found, Request, changed, unreadable
from edlz.services.inputs.reading.params import FLAG, parse_params
from edlz.services.inputs.reading.records import Columns, Order
from edlz.services.protocol.plan import Column, ColumnKind, DataSource, FileFacts

__all__ = ["FORMAT"]

CACHE_BYTES = 64 << 20  # decoded row groups, of each open file; the newest is always kept
_MAGIC = b"PAR1"
_TAIL = struct.Struct("<I4s")
_HEAD_BYTES = 4096  # what a file of another format is known by
_AGAIN = "get the whole file again, or write it again"


class Parquet:
    """The format."""

    name = "Parquet"
    suffixes = (".parquet", ".pq")
    params: Mapping[str, str] = {
        "columns": "names of the columns to read: all by default",
        "defaults": "column:value, for rows that have none",
    }

    def find(self, request: Request) -> Found:
        require_pyarrow(self.name)
        counts, facts, schemas = [], [], []
        for name in request.files:
            facts.append(_facts(name))
            file = _open(name)
            counts.append(file.metadata.num_rows)
            schemas.append(file.schema_arrow)
        return Found(counts=counts, facts=facts, columns=_common_columns(request, schemas))

    def open(self, name: str, source: DataSource, facts: FileFacts | None) -> "OpenParquet":
        if facts is not None:
            found = as_planned(name, facts)
            if _facts(name) != facts:
                raise changed(name, facts, found.size_bytes)
        return OpenParquet(name, facts, source)


class OpenParquet:
    """An open file."""

    def __init__(self, name: str, facts: FileFacts | None, source: DataSource) -> None:
        self._name, self._facts = name, facts
        self._columns, self._masks = source.columns, source.masks
        self._defaults = {} if source.masks else defaults_of(parse_params(source.params), source.columns)
        self._file = _open(name)
        about = self._file.metadata
        counts = [about.row_group(place).num_rows for place in range(about.num_row_groups)]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._groups: OrderedDict[int, _RowGroup] = OrderedDict()  # decoded ones, least recently used first
        self._lock = threading.Lock()  # guards the file and the groups

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, first: int, count: int, order: Order | None = None) -> Columns:
        if first < 0 or count < 0 or first + count > len(self):
            raise IndexError(f"{count} records from {first} on are not among {len(self)}")
        parts: list[_Part] = []
        place = int(np.searchsorted(self._ends, first, side="right"))
        at = first
        while at < first + count:
            begin = int(self._ends[place - 1]) if place else 0
            end = min(int(self._ends[place]), first + count)
            parts.append((self._group(place), slice(at - begin, end - begin)))
            at, place = end, place + 1
        # Most tasks lie in one row group, and most columns are of numbers: slices of those are all that it takes.
        rows, numbers = (parts[0][1], parts[0][0].numbers) if len(parts) == 1 else (slice(0), {})
        try:
            values = {
                column.name: numbers[column.name][rows]
                if column.name in numbers
                else self._values(column, parts)
                for column in self._columns
            }
        except BadValueError as error:
            is_missing = isinstance(error, MissingValueError)
            raise DataError(
                f'{self._name}, row {first + error.row}: column "{error.column.name}" {error.text}',
                default_for(error.column)
                if is_missing
                else "write it as text, or as int64 with the same bits",
            ) from error
        found = Columns(values, count)
        return found if order is None else found.take(order)

    def close(self) -> None:
        with self._lock:
            self._groups.clear()

    def _values(self, column: Column, parts: "Sequence[_Part]") -> Any:
        """Return a column's values in parts of row groups, one after another."""
        name = column.name
        plain = [group.numbers[name][rows] for group, rows in parts if name in group.numbers]
        if plain and len(plain) == len(parts):
            return plain[0] if len(plain) == 1 else np.concatenate(plain)
        import pyarrow

        chunks = [chunk for group, rows in parts for chunk in group.chunks(name, rows)]
        values = pyarrow.chunked_array(chunks, None if chunks else self._file.schema_arrow.field(name).type)
        if isinstance(values.type, pyarrow.DictionaryType):
            values = values.cast(values.type.value_type)
        return to_numpy(column, values, self._defaults, masks=self._masks)

    def _group(self, place: int) -> "_RowGroup":
        import pyarrow

        with self._lock:
            group = self._groups.get(place)
            if group is not None:
                self._groups.move_to_end(place)
                return group
            names = [column.name for column in self._columns]
            try:
                # In the order of our columns, not in that of the file's.
                table = self._file.read_row_group(place, columns=names, use_threads=False).select(names)
            except (OSError, pyarrow.ArrowException) as error:
                raise DataError(
                    f"{self._name} is damaged: row group {place} cannot be read ({error})", _AGAIN
                ) from error
            if is_address(self._name) and self._facts is not None:
                as_planned(self._name, self._facts)  # pages have no checksums: one look is for them all
            group = self._groups[place] = _RowGroup(self._columns, table, self._defaults)
            while sum(kept.nbytes for kept in self._groups.values()) > CACHE_BYTES and len(self._groups) > 1:
                self._groups.popitem(last=False)
            return group


class _RowGroup:
    """A decoded row group: columns of numbers as tasks get them, by their names, and the others as Arrow has them.

    Parameters
    ----------
    columns : sequence of Column
    table : pyarrow.Table
        Of these columns.
    defaults : mapping of str to value
        Of columns whose gaps are filled as their tasks come.
    """

    def __init__(self, columns: Sequence[Column], table: Any, defaults: Mapping[str, Any]) -> None:
        found = {
            column.name: plain_numbers(column, values)
            for column, values in zip(columns, table.columns, strict=True)
            if column.name not in defaults
        }
        self.numbers = {name: array for name, array in found.items() if array is not None}
        # Those of whole numbers are the same memory, and wanted where another row group has gaps.
        floats = [name for name, array in self.numbers.items() if array.dtype.kind == "f"]
        self._table = table.drop_columns(floats)
        self.nbytes = self._table.nbytes + sum(self.numbers[name].nbytes for name in floats)

    def chunks(self, name: str, rows: slice) -> list[Any]:
        """Return Arrow's arrays of some rows of a column; of floats only if they are not among the numbers."""
        chunks: list[Any] = self._table.column(name).slice(rows.start, rows.stop - rows.start).chunks
        return chunks


_Part = tuple[_RowGroup, slice]  # rows of a group


def _facts(name: str) -> FileFacts:
    """Return what a file is like: its footer says where everything lies, and how large it is.

    Raises
    ------
    DataError
        If it has none.
    """
    try:
        stored = look(name)
        size = stored.size_bytes
        with open_stored(name) as file:
            head = file.read(_HEAD_BYTES)
            if not size:
                raise DataError(f"{name} is empty (0 bytes at offset 0)", "remove it, or write it again")
            if size < 2 * _TAIL.size or head[: len(_MAGIC)] != _MAGIC:
                raise DataError(f"{name} is not Parquet ({describe_start(head)})", advice_for(head))
            file.seek(size - _TAIL.size)
            length, magic = _TAIL.unpack(file.read(_TAIL.size))
            if magic != _MAGIC or length > size - _TAIL.size - len(_MAGIC):
                raise DataError(
                    f"{name} is cut off: there is no footer at its end, offset {size - _TAIL.size}", _AGAIN
                )
            file.seek(size - _TAIL.size - length)
            checksum = scanning.crc32c(file.read(length))
            return FileFacts(name=name, size_bytes=size, checksum=checksum, mark=stored.mark)
    except OSError as error:
        raise unreadable(name, error) from error


def _open(name: str) -> Any:
    import pyarrow
    from pyarrow import parquet

    try:
        if is_address(name):
            return parquet.ParquetFile(open_stored(name), pre_buffer=True)
        return parquet.ParquetFile(name, memory_map=True)
    except (OSError, pyarrow.ArrowException) as error:
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # the system's, not one that pyarrow has made
            raise unreadable(name, error) from error
        raise DataError(f"{name} is damaged: its footer cannot be read ({error})", _AGAIN) from error


def _common_columns(request: Request, schemas: Sequence[Any]) -> tuple[Column, ...]:
    """Return the columns to read: those of the first file, which the others have in whatever order, among whatever others."""
    params, first, names = request.params, request.files[0], list(schemas[0].names)
    wanted = params.columns() or (_readable(request, schemas[0]) if request.leaves_out else names)
    columns = _columns(first, schemas[0], wanted)
    refuse_missing(first, names, params.mapping("defaults"))
    defaults_of(params, columns)
    for name, schema in zip(request.files[1:], schemas[1:], strict=True):
        for column, here in zip(columns, _columns(name, schema, wanted), strict=True):
            if here != column:
                raise DataError(
                    f'{name}: column "{column.name}" is {here.type}, and {column.type} in {first}',
                    f"write all files with the same types, or leave it out: {_others(schema, column.name)}",
                )
    return columns


def _readable(request: Request, schema: Any) -> list[str]:
    """Return the names of columns of types that are read; tell of the others."""
    others = {field.name: field.type for field in schema if _shape_of(field) is None}
    for name, kind in others.items():
        request.tell(f'{request.files[0]}: column "{name}" is left out: it is of type {kind}')
    return [name for name in schema.names if name not in others]


def _columns(name: str, schema: Any, wanted: Sequence[str]) -> tuple[Column, ...]:
    refuse_missing(name, schema.names, wanted)
    columns = []
    for one in wanted:
        if schema.names.count(one) > 1:
            raise DataError(
                f'{name}: two columns are called "{one}"',
                f"give each a name of its own, or leave both out: {_others(schema, one)}",
            )
        shape = _shape_of(schema.field(one))
        if shape is None:
            raise DataError(
                f'{name}: column "{one}" is of type {schema.field(one).type}, which a model has no use for',
                f"leave it out: {_others(schema, one)}; types that are read: {', '.join(KINDS)}, and vectors of them",
            )
        columns.append(Column(name=one, kind=shape[0], width=shape[1]))
    return tuple(columns)


def _shape_of(field: Any) -> tuple[ColumnKind, int] | None:
    """Return the kind of a column's values, and how many a row has if it has a vector; None: they are not read."""
    from pyarrow import types

    if types.is_fixed_size_list(field.type):
        kind, width = kind_of(field.type.value_type), field.type.list_size
    else:
        kind, width = kind_of(field.type), 0
    return None if kind is None else (kind, width)


def _others(schema: Any, column: str) -> str:
    """Return the parameter that reads all columns but this one, and those of types that are not read."""
    names = [field.name for field in schema if field.name != column and _shape_of(field) is not None]
    named = ",".join(names) if 0 < len(names) <= MOST_SHOWN and not set(",;=") & set("".join(names)) else "…"
    return f'{FLAG}="columns={named}"'


FORMAT = Parquet()

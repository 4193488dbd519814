"""Parquet: row groups of columns, by the footers of the files.

A row group is decoded as a whole, and kept for the tasks that follow: tasks should not be far smaller than row groups.
"""

import struct
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edlz.core_ext import scanning
from edlz.services.configuration.data_addresses import is_address
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.errors import DataError
from edlz.services.inputs.reading.arrow import KINDS, MissingValueError, kind_of, require_pyarrow, to_numpy
from edlz.services.inputs.reading.content import as_planned, look, open_stored
from edlz.services.inputs.reading.format import Found, Request, changed, unreadable
from edlz.services.inputs.reading.params import FLAG, parse_params
from edlz.services.inputs.reading.records import Columns, Order
from edlz.services.protocol.plan import Column, DataSource, FileFacts

__all__ = ["FORMAT"]

CACHE_BYTES = 64 << 20  # decoded row groups, of each open file; the newest is always kept
_MAGIC = b"PAR1"
_TAIL = struct.Struct("<I4s")
_MOST_SHOWN = 10
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
        wanted = request.params.texts("columns")
        request.params.mapping("defaults")
        counts, facts, columns = [], [], None
        for name in request.files:
            facts.append(_facts(name))
            file = _open(name)
            counts.append(file.metadata.num_rows)
            found = _columns(name, file.schema_arrow, wanted)
            if columns is not None and found != columns:
                raise _other_columns(name, request.files[0], found, columns)
            columns = found
        return Found(counts=counts, facts=facts, columns=columns or ())

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
        self._defaults = {} if source.masks else parse_params(source.params).mapping("defaults")
        self._file = _open(name)
        about = self._file.metadata
        counts = [about.row_group(place).num_rows for place in range(about.num_row_groups)]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._groups: OrderedDict[int, Any] = OrderedDict()  # decoded ones, least recently used first
        self._lock = threading.Lock()  # guards the file and the groups

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, first: int, count: int, order: Order | None = None) -> Columns:
        import pyarrow

        if first < 0 or count < 0 or first + count > len(self):
            raise IndexError(f"{count} records from {first} on are not among {len(self)}")
        parts = []
        place = int(np.searchsorted(self._ends, first, side="right"))
        at = first
        while at < first + count:
            begin = int(self._ends[place - 1]) if place else 0
            end = min(int(self._ends[place]), first + count)
            parts.append(self._group(place).slice(at - begin, end - at))
            at, place = end, place + 1
        if not parts:
            schema = self._file.schema_arrow
            parts = [pyarrow.schema([schema.field(column.name) for column in self._columns]).empty_table()]
        table = pyarrow.concat_tables(parts)
        try:
            values = {
                column.name: self._values(column, table.column(column.name)) for column in self._columns
            }
        except MissingValueError as error:
            raise DataError(
                f'{self._name}, row {first + error.row}: column "{error.column}" has no value',
                f'{FLAG}="defaults={error.column}:-1" reads none as -1',
            ) from error
        found = Columns(values, count)
        return found if order is None else found.take(order)

    def close(self) -> None:
        with self._lock:
            self._groups.clear()

    def _values(self, column: Column, values: Any) -> Any:
        from pyarrow import types

        if types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        return to_numpy(column, values, self._defaults, masks=self._masks)

    def _group(self, place: int) -> Any:
        import pyarrow

        with self._lock:
            table = self._groups.get(place)
            if table is not None:
                self._groups.move_to_end(place)
                return table
            names = [column.name for column in self._columns]
            try:
                table = self._file.read_row_group(place, columns=names, use_threads=False)
            except (OSError, pyarrow.ArrowException) as error:
                raise DataError(
                    f"{self._name} is damaged: row group {place} cannot be read ({error})", _AGAIN
                ) from error
            if is_address(self._name) and self._facts is not None:
                as_planned(self._name, self._facts)  # pages have no checksums: one look is for them all
            self._groups[place] = table
            while sum(kept.nbytes for kept in self._groups.values()) > CACHE_BYTES and len(self._groups) > 1:
                self._groups.popitem(last=False)
            return table


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
            head = file.read(len(_MAGIC))
            if size < 2 * _TAIL.size or head != _MAGIC:
                raise DataError(
                    f"{name} is not Parquet: it begins with {head.hex(' ') or 'nothing'} at offset 0, not with PAR1",
                    f'say what it is: {FLAG}="reader_type=…"',
                )
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


def _columns(name: str, schema: Any, wanted: Sequence[str] | None) -> tuple[Column, ...]:
    names = list(schema.names)
    for column in wanted or ():
        if column not in names:
            near = did_you_mean(nearest(column, names))
            shown = ", ".join(names[:_MOST_SHOWN]) + (", …" if len(names) > _MOST_SHOWN else "")
            raise DataError(f'{name}: there is no column "{column}"', near or f"it has {shown}")
    return tuple(_column(name, schema.field(one)) for one in (names if wanted is None else wanted))


def _column(name: str, field: Any) -> Column:
    from pyarrow import types

    kind, width = field.type, 0
    if types.is_fixed_size_list(kind):
        kind, width = kind.value_type, kind.list_size
    found = kind_of(kind)
    if found is None:
        raise DataError(
            f'{name}: column "{field.name}" is of type {field.type}, which a model has no use for',
            f'leave it out: {FLAG}="columns=…"; types that are read: {", ".join(KINDS)}, and vectors of them',
        )
    return Column(name=field.name, kind=found, width=width)


def _other_columns(name: str, first: str, found: Sequence[Column], wanted: Sequence[Column]) -> DataError:
    differing = next((pair for pair in zip(found, wanted, strict=False) if pair[0] != pair[1]), None)
    if differing is None:
        text = f"{name} has {len(found)} columns, {first} has {len(wanted)}"
    else:
        text = f"{name} has {_told(differing[0])} where {first} has {_told(differing[1])}"
    return DataError(text, f'all files have the same columns; some of them: {FLAG}="columns=…"')


def _told(column: Column) -> str:
    return f'"{column.name}" of {column.kind}{f", {column.width} each" if column.width else ""}'


FORMAT = Parquet()

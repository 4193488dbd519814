"""CSV and TSV: rows of columns with types, cut into tasks exactly, whatever is quoted; also gzipped.

What a row is, the index says (`lines`); what is in it, pyarrow.  Types are fixed when the job is planned, from the first rows: a
worker never infers one, so that a later value changes no type.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edlz.core_ext import scanning
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.errors import DataError
from edlz.services.inputs.reading.arrow import KINDS, MissingValueError, columns_of, require_pyarrow
from edlz.services.inputs.reading.bad_rows import (
    TO_UTF8,
    Wrong,
    explain,
    explain_count,
    explain_missing,
    refuse_return,
    separator_in,
    shown,
)
from edlz.services.inputs.reading.columns import defaults_of, refuse_missing
from edlz.services.inputs.reading.content import Content, size_of
from edlz.services.inputs.reading.format import Found, Request, changed, unreadable
from edlz.services.inputs.reading.inferred import infer_kinds
from edlz.services.inputs.reading.lines import (
    NO_QUOTE,
    LineRules,
    Lines,
    find_head,
    index_lines,
    line_at,
    read_spans,
    read_whole_rows,
)
from edlz.services.inputs.reading.params import FLAG, Params, parse_params
from edlz.services.inputs.reading.records import Columns, Order
from edlz.services.inputs.reading.rows import Dialect, RowParser, first_row
from edlz.services.inputs.reading.spans import SpanIndex
from edlz.services.protocol.plan import Column, ColumnKind, DataSource, FileFacts

__all__ = ["FORMAT"]

_HEAD_BYTES = 64 << 10  # most headers are shorter
_NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A"]


class CSV:
    """The format."""

    name = "CSV"
    suffixes = (".csv", ".tsv")
    params: Mapping[str, str] = {
        "sep": "what stands between values; a comma, or a tab for *.tsv",
        "quote": 'what stands around texts: " by default, or none',
        "header": "whether the first row has the columns' names: yes by default",
        "columns": "names of the columns to read; without a header: of all columns",
        "types": f"column:type, for types other than the first rows have: {', '.join(KINDS)}",
        "null_values": "texts that stand for no value in columns of numbers",
        "defaults": "column:value, for rows that have none",
    }

    def find(self, request: Request) -> Found:
        require_pyarrow(self.name, f'{FLAG}="reader_type=Text" for lines as they are')
        rules = _Settings.of(request.params, request.files[0]).rules  # the same for all files
        try:
            all_bytes = sum(map(size_of, request.files))
            lines = [index_lines(name, rules, all_bytes, is_quick=request.is_quick) for name in request.files]
        except OSError as error:
            raise unreadable(str(error.filename), error) from error
        filled = [(name, one) for name, one in zip(request.files, lines, strict=True) if one.rows]
        if not filled:
            name = request.files[0]
            refuse_return(name, lines[0].header, _Settings.of(request.params, name).dialect)
            raise DataError(
                f"{name} has no rows: {'a header alone' if lines[0].header else 'it is empty'}",
                "a CSV file has a line of names, and then a row for each record",
            )
        columns = _columns(filled[0][0], filled[0][1], request)
        for name, one in filled:
            of_file = _Settings.of(request.params, name)
            names = _names(of_file, name, one.header, one.sample)
            refuse_missing(f"{name}, line 1", names, [column.name for column in columns])
        return Found(
            counts=[one.rows for one in lines],
            facts=[one.facts for one in lines],
            columns=columns,
            is_counted=all(one.is_whole for one in lines),
        )

    def open(self, name: str, source: DataSource, facts: FileFacts | None) -> "OpenCSV":
        settings = _Settings.of(parse_params(source.params), name)
        assert facts is not None, "every job with CSV files has facts of them"
        return OpenCSV(name, facts, settings, source)


@dataclass(frozen=True, slots=True)
class _Settings:
    """The parameters, checked."""

    dialect: Dialect
    rules: LineRules
    names: tuple[str, ...] | None
    types: Mapping[str, ColumnKind]
    defaults: Mapping[str, Any]

    @classmethod
    def of(cls, params: Params, file: str) -> "_Settings":
        is_tabbed = file.lower().removesuffix(".gz").endswith(".tsv")
        sep = _letter(params, "sep", "\t" if is_tabbed else ",")
        quote = params.text_of("quote", '"')
        quote = "" if quote.lower() == "none" else _letter(params, "quote", '"')
        if quote == sep:
            named = "quote" if "quote" in params.values else "sep"
            raise params.wrong(named, "is what stands between values and around texts", "name two characters")
        has_header = params.flag("header", default=True)
        names = params.columns()
        types = params.mapping("types")
        for column, kind in types.items():
            if kind not in KINDS:
                near = did_you_mean(nearest(str(kind), KINDS))
                raise params.wrong(
                    "types", f"has {kind!r} for {column}", near or f"one of {', '.join(KINDS)}"
                )
        nulls = params.texts("null_values")
        return cls(
            Dialect(sep=sep, quote=quote, nulls=tuple(_NULLS if nulls is None else nulls)),
            LineRules(quote=ord(quote) if quote else NO_QUOTE, skips_empty=True, has_header=has_header),
            None if names is None else tuple(names),
            types,
            params.mapping("defaults"),
        )


class OpenCSV:
    """An open file."""

    def __init__(self, name: str, facts: FileFacts, settings: _Settings, source: DataSource) -> None:
        self._name, self._facts, self._settings, self._columns = name, facts, settings, source.columns
        self._defaults = {} if source.masks else defaults_of(parse_params(source.params), source.columns)
        self._masks = source.masks
        self._content = Content(name, facts)
        sample, _ = read_whole_rows(lambda count: self._content.view(0, count), settings.rules, _HEAD_BYTES)
        start, header = find_head(name, sample, settings.rules)
        if scanning.crc32c(header + facts.index) != facts.checksum:
            raise changed(name, facts)
        self._names = _names(settings, name, header, sample[start:])
        self._index = SpanIndex(facts.index, start)
        self._parser = RowParser(settings.dialect, self._names, source.columns)

    def __len__(self) -> int:
        return self._index.records

    def read(self, first: int, count: int, order: Order | None = None) -> Columns:
        data, start = self._rows(first, count)
        dialect, columns = self._settings.dialect, self._columns
        try:
            table = self._parser.table(data)
            values = columns_of(columns, table, self._defaults, masks=self._masks)
        except MissingValueError as error:
            raise self._placed(start, explain_missing(bytes(data), dialect, error)) from error
        except Exception as error:  # pyarrow's have many classes
            raise self._placed(start, explain(bytes(data), dialect, self._names, columns, error)) from error
        if table.num_rows != count:
            raise self._placed(start, explain_count(bytes(data), dialect, count, table.num_rows))
        found = Columns(values, count)
        return found if order is None else found.take(order)

    def close(self) -> None:
        self._content.close()

    def _rows(self, first: int, count: int) -> tuple[memoryview, int]:
        """Return the bytes of some rows, and where they begin."""
        spans = self._index.holding(first, count)
        if not spans:
            return memoryview(b""), 0
        data = read_spans(self._name, self._facts, self._content, spans)
        # Only the first and the last span are looked through: those in between are wanted whole.
        begin, head, tail = spans[0].start, spans[0], spans[-1]
        quote, last = self._settings.rules.quote, first + count - 1 - tail.first
        starts, _, _ = scanning.row_bounds(data[: head.end - begin], quote, True, first - head.first, 1)
        _, ends, _ = scanning.row_bounds(data[tail.start - begin :], quote, True, last, 1)
        return data[int(starts[0]) : tail.start - begin + int(ends[0])], begin + int(starts[0])

    def _placed(self, start: int, what: Wrong) -> DataError:
        """Return the error for what is wrong at an offset of some rows: it names the line."""
        offset, text, advice = what
        line = line_at(self._content.view(0, start + offset), start + offset)
        return DataError(f"{self._name}, line {line}: {text}", advice)


def _letter(params: Params, name: str, default: str) -> str:
    value = params.text_of(name, default)
    value = "\t" if value in ("\\t", "tab") else value
    if len(value) != 1 or not value.isascii() or value in "\r\n":
        raise params.wrong(name, "is not one ASCII character", "a tab is written as tab")
    return value


def _names(settings: _Settings, name: str, header: bytes, sample: bytes | memoryview) -> list[str]:
    """Return the names of all columns of a file."""
    try:
        names = first_row(header if settings.rules.has_header else sample, settings.dialect)
    except UnicodeDecodeError as e:
        raise DataError(f"{name}, line 1: byte {e.object[e.start]:#04x} is not UTF-8", TO_UTF8) from e
    if settings.rules.has_header:
        refuse_return(name, header, settings.dialect)
        twice = next((one for one in names if names.count(one) > 1), None)
        if twice is not None:
            raise DataError(
                f'{name}, line 1: two columns are called "{twice}"', "give each a name of its own"
            )
        return names
    width = len(names)
    if settings.names is None:
        return [f"column_{place}" for place in range(width)]
    if len(settings.names) != width:
        raise DataError(
            f"{name}, line 1: {width} columns, but columns={','.join(settings.names)} names {len(settings.names)}",
            "without a header, columns= names all of them",
        )
    return list(settings.names)


def _columns(name: str, lines: Lines, request: Request) -> tuple[Column, ...]:
    """Return the columns to read, with the types that they have from now on."""
    settings = _Settings.of(request.params, name)
    names = _names(settings, name, lines.header, lines.sample)
    chosen = settings.names if settings.rules.has_header and settings.names is not None else names
    refuse_missing(f"{name}, line 1", names, [*chosen, *settings.types, *settings.defaults])
    known = {column.name: column.kind for column in request.columns if column.name in chosen}
    kinds = infer_kinds(name, lines, settings.dialect, names, chosen, known | dict(settings.types))
    columns = tuple(Column(name=one, kind=kinds[one]) for one in chosen)
    defaults_of(request.params, columns)
    other = separator_in(names)
    if other:
        request.tell(f'{name} has one column, {shown(names[0])}; if it has more: {FLAG}="sep={other}"')
    return columns


FORMAT = CSV()

"""What is wrong with rows of CSV text that cannot be read: which row, which column, which value.

Slow, and only run once something is wrong: pyarrow's errors name rows of a block, not lines of a file.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from edlz.core_ext import scanning
from edlz.services.errors import DataError
from edlz.services.inputs.reading.arrow import MissingValueError, arrow_type
from edlz.services.inputs.reading.columns import default_for
from edlz.services.inputs.reading.lines import NO_QUOTE
from edlz.services.inputs.reading.params import FLAG
from edlz.services.inputs.reading.rows import Dialect, parse_rows
from edlz.services.protocol.plan import Column, ColumnKind

__all__ = [
    "TO_UTF8",
    "Wrong",
    "explain",
    "explain_count",
    "explain_missing",
    "refuse_return",
    "separator_in",
    "shown",
]

Wrong = tuple[int, str, str]
"""Where it is in the data, what it is, and what to do."""

TO_UTF8 = "write the file in UTF-8; if it is in Latin-1: iconv -f LATIN1 -t UTF-8 FILE"

_MOST_SHOWN = 40
_COMPARE = "compare the rows with the parameters: edlz data head FILE"
_RETURN_IN_ROW = "a carriage return alone ends a line in the middle of the row"
_TO_LINE_FEEDS = "write the file with line feeds: tr '\\r' '\\n'"


def explain(
    data: bytes, dialect: Dialect, names: Sequence[str], columns: Sequence[Column], error: Exception
) -> Wrong:
    """Return what is wrong with rows that `parse_rows` refuses."""
    starts, ends = _bounds(data, dialect)
    for start, end in zip(starts, ends, strict=True):
        found = _wrong_row(data[start:end], dialect, names)
        if found is not None:
            return start + found[0], found[1], found[2]
    try:
        texts = parse_rows(data, dialect, names, [Column(name=c.name, kind="string") for c in columns])
    except Exception:  # pyarrow's have many classes; to it rows end elsewhere than by their index
        return _other_ends(data, dialect) or (0, str(error), _COMPARE)
    for column in columns:
        row = _bad_value(texts.column(column.name), column, dialect)
        if row is not None:
            text = str(texts.column(column.name)[row])
            return (
                starts[row],
                f'column "{column.name}" has {shown(text)}, which is no {column.kind}',
                f'correct it; or read the column as another type: {FLAG}="types={column.name}:{_kind_for(text)}"',
            )
    return 0, str(error), _COMPARE


def explain_missing(data: bytes, dialect: Dialect, error: MissingValueError) -> Wrong:
    """Return where a column of whole numbers has none."""
    starts, _ = _bounds(data, dialect)
    column, advice = error.column, default_for(error.column)
    if column.kind != "bool":
        advice = f'{FLAG}="types={column.name}:float32" reads none as NaN; "defaults={column.name}:-1" as -1'
    return starts[error.row], f'column "{column.name}" has no value', advice


def explain_count(data: bytes, dialect: Dialect, count: int, found: int) -> Wrong:
    """Return why rows are another number to pyarrow than by their index."""
    text = f"{found} rows are found from here on where {count} should be: a carriage return alone ends a line"
    return _other_ends(data, dialect) or (0, text, _TO_LINE_FEEDS)


def refuse_return(name: str, header: bytes, dialect: Dialect) -> None:
    """Refuse a header that goes on behind a carriage return: the rows of such a file would be its names.

    Raises
    ------
    DataError
    """
    if b"\r" in _unquoted(header.rstrip(b"\n").removesuffix(b"\r"), dialect):
        raise DataError(f"{name}, line 1: {_RETURN_IN_ROW}", _TO_LINE_FEEDS)


def _other_ends(data: bytes, dialect: Dialect) -> Wrong | None:
    """Return where rows end to pyarrow and not by their index: at a stray quote, or at a lone carriage return."""
    starts, ends = _bounds(data, dialect)
    for start, end in zip(starts, ends, strict=True):
        place = _stray_quote(data[start:end].decode(errors="replace"), dialect) if dialect.quote else None
        if place is not None:
            return (
                start,
                "a quote stands in a text that is not quoted, or behind the end of one that is",
                f'quote the text, and double the quote in it; {FLAG}="quote=none" reads quotes as they are',
            )
        if b"\r" in _unquoted(data[start:end].removesuffix(b"\r"), dialect):
            return start, _RETURN_IN_ROW, _TO_LINE_FEEDS
    return None


def _stray_quote(row: str, dialect: Dialect) -> int | None:
    """Return the place of a quote that neither opens nor closes a value nor is doubled."""
    is_open, before = False, dialect.sep
    for place, letter in enumerate(row):
        if letter == dialect.quote:
            if not is_open and before not in (dialect.sep, dialect.quote):
                return place
            is_open = not is_open
        elif not is_open and before == dialect.quote and letter != dialect.sep:
            return place
        before = letter
    return None


def _bounds(data: bytes, dialect: Dialect) -> tuple[list[int], list[int]]:
    quote = ord(dialect.quote) if dialect.quote else NO_QUOTE
    starts, ends, _ = scanning.row_bounds(data, quote, True, 0, data.count(b"\n") + 1)
    return starts.tolist(), ends.tolist()


def _wrong_row(row: bytes, dialect: Dialect, names: Sequence[str]) -> Wrong | None:
    """Return what is wrong with a row as such."""
    try:
        row.decode()
    except UnicodeDecodeError as e:
        return (
            e.start,
            f"byte {row[e.start]:#04x} is not UTF-8",
            TO_UTF8,
        )
    width = len(_cells(row, dialect))
    if width != len(names):
        few = f"{width} column{'s' * (width != 1)}, and {len(names)} {'are' if len(names) != 1 else 'is'} expected"
        other = separator_in(names)
        if other:
            return 0, few, f'say what stands between values: {FLAG}="sep={other}"'
        quoting = f'; a stray quote joins rows: {FLAG}="quote=none" reads quotes as they are'
        return 0, few, f"correct the row{quoting if dialect.quote else ''}"
    return None


def separator_in(names: Sequence[str]) -> str:
    """Return what else seems to stand between values, as `sep=` has it, if a file has one column by its name alone."""
    if len(names) != 1:
        return ""
    found = max("\t;|,", key=names[0].count)
    return {"\t": "tab"}.get(found, found) if found in names[0] else ""


def _cells(row: bytes, dialect: Dialect) -> list[bytes]:
    """Split a row: at separators outside of quotes."""
    sep = ord(dialect.sep)
    if not dialect.quote or dialect.quote.encode() not in row:
        return row.split(dialect.sep.encode())
    letters = np.frombuffer(row, np.uint8)
    outside = np.cumsum(letters == ord(dialect.quote)) % 2 == 0
    cuts = np.flatnonzero((letters == sep) & outside).tolist()
    return [row[a:b] for a, b in zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(row)], strict=True)]


def _unquoted(row: bytes, dialect: Dialect) -> bytes:
    """Return what of a row stands outside of quotes."""
    return b"".join(row.split(dialect.quote.encode())[::2]) if dialect.quote else row


def _bad_value(texts: Any, column: Column, dialect: Dialect) -> int | None:
    """Return the first row whose text is no value of a column."""
    if column.kind == "string":
        return None
    for row, text in enumerate(texts.to_pylist()):
        if text not in dialect.nulls and not _is_value(text, column):
            return row
    return None


def _kind_for(text: str) -> ColumnKind:
    """Return a kind that a value is one of which is none of its column's."""
    try:
        return "float32" if float(text) % 1 else "string"
    except ValueError:
        return "string"


def _is_value(text: str, column: Column) -> bool:
    import pyarrow
    from pyarrow import compute

    try:
        compute.cast(pyarrow.scalar(text.strip()), arrow_type(column.kind))
    except pyarrow.ArrowInvalid:
        return False
    return True


def shown(text: str) -> str:
    """Return a text in quotes, and no more of it than fits a line."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…").replace("'", '"')

"""Rows of CSV text as an Arrow table: one dialect, and the types that the plan has."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edlz.core_ext import scanning
from edlz.services.inputs.reading.arrow import arrow_type
from edlz.services.protocol.plan import Column

__all__ = ["Dialect", "RowParser", "first_row", "parse_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How rows are written.

    Attributes
    ----------
    sep : str
        One character.
    quote : str
        One, or nothing.
    nulls : tuple of str
        Texts that stand for no value where a number should be.
    """

    sep: str
    quote: str
    nulls: tuple[str, ...]


class RowParser:
    """Makes tables of rows that are all written alike; any thread may call it.

    Parameters
    ----------
    dialect : Dialect
    names : sequence of str
        Of all columns that a row has.
    columns : sequence of Column
        Those that are wanted.
    infers : bool
        All are, and those that are not among `columns` get the types that the rows suggest.
    """

    def __init__(
        self, dialect: Dialect, names: Sequence[str], columns: Sequence[Column], *, infers: bool = False
    ) -> None:
        from pyarrow import csv as arrow_csv

        self._names = list(names)
        self._types = {column.name: arrow_type(column.kind) for column in columns}
        self._parse = arrow_csv.ParseOptions(
            delimiter=dialect.sep,
            quote_char=dialect.quote or False,
            double_quote=bool(dialect.quote),
            newlines_in_values=bool(dialect.quote),
        )
        self._convert = arrow_csv.ConvertOptions(
            column_types=self._types,
            null_values=list(dialect.nulls),
            strings_can_be_null=False,
            include_columns=None if infers else [column.name for column in columns],
            timestamp_parsers=[_NO_TIMES] if infers else None,
        )

    def table(self, data: bytes | memoryview) -> Any:
        """Return the table of some whole rows.

        Raises
        ------
        pyarrow.ArrowInvalid
            If the rows are not so.
        """
        import pyarrow
        from pyarrow import csv as arrow_csv

        if not len(data):
            return pyarrow.table({name: pyarrow.array([], kind) for name, kind in self._types.items()})
        # One block in one thread: errors name rows, and what the table is does not depend on where blocks end.
        read = arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._names)
        return arrow_csv.read_csv(pyarrow.py_buffer(data), read, self._parse, self._convert)


def parse_rows(
    data: bytes | memoryview,
    dialect: Dialect,
    names: Sequence[str],
    columns: Sequence[Column],
    *,
    infers: bool = False,
) -> Any:
    """Return the table of some whole rows; see `RowParser`."""
    return RowParser(dialect, names, columns, infers=infers).table(data)


def first_row(data: bytes | memoryview, dialect: Dialect) -> list[str]:
    """Return the values of the first row as texts; there is one.

    Raises
    ------
    UnicodeDecodeError
        If it is not UTF-8.
    """
    quote = ord(dialect.quote) if dialect.quote else -1
    starts, ends, _ = scanning.row_bounds(data, quote, True, 0, 1)
    text = bytes(data[int(starts[0]) : int(ends[0])]).decode()
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # a name may be as long as any text
    lines = io.StringIO(text, newline="")
    if not dialect.quote:
        return next(csv.reader(lines, delimiter=dialect.sep, quoting=csv.QUOTE_NONE))
    return next(csv.reader(lines, delimiter=dialect.sep, quotechar=dialect.quote))


_NO_TIMES = "never a time %Y"  # texts stay texts: TensorFlow has no times

"""Files of lines: an index of them at submission, and reading the bytes of some.

A line's end within quotes is none of a row.  The index counts quotes, as RFC 4180 has them: a quote within quotes is
doubled, so that the parity tells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from edlz.api.first_bytes import advice_for, describe_start, is_no_text
from edlz.core_ext import scanning
from edlz.services.errors import DataError
from edlz.services.inputs.reading.content import (
    QUICK_BYTES,
    Content,
    length_of,
    look,
    open_content,
    read_start,
)
from edlz.services.inputs.reading.spans import Span, SpanIndex, check_span, find_spans, pack_spans, span_bytes
from edlz.services.protocol.plan import FileFacts

__all__ = [
    "NO_QUOTE",
    "LineRules",
    "Lines",
    "find_head",
    "index_lines",
    "line_at",
    "read_spans",
    "read_whole_rows",
]

Text = TypeVar("Text", bytes, memoryview)

NO_QUOTE = -1
SAMPLE_BYTES = 1 << 20
_LONGEST_ROW = 64 << 20
_COUNTED_BYTES = 16 << 20
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRules:
    """What a row is.

    Attributes
    ----------
    quote : int
        A byte, or NO_QUOTE.
    skips_empty : bool
        Whether an empty line is no row.
    has_header : bool
        Whether the first row is none of the records.
    """

    quote: int
    skips_empty: bool
    has_header: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What was found in a file.

    Attributes
    ----------
    rows : int
        How many there are; some, if `is_whole` is not so.
    start : int
        Where the first one begins.
    header : bytes
        Of the header, or nothing.
    sample : bytes
        Of the first rows.
    is_whole : bool
        Whether all of it was looked at.
    """

    facts: FileFacts
    rows: int
    start: int
    header: bytes
    sample: bytes
    is_whole: bool = True


def index_lines(name: str, rules: LineRules, all_bytes: int = 0, *, is_quick: bool = False) -> Lines:
    """Find the rows of a file.

    Parameters
    ----------
    all_bytes : int
        Of all files of the job.
    is_quick : bool
        Large files are not read to their ends.

    Raises
    ------
    OSError
        If it cannot be read.
    DataError
        If it is no text, or in UTF-16, or quotes are not closed.
    """
    stored = look(name)
    sample, is_cut = read_whole_rows(lambda count: read_start(name, count), rules)
    if is_no_text(sample):
        raise DataError(f"{name} is no text ({describe_start(sample)})", advice_for(sample))
    start, header = find_head(name, sample, rules)
    sample = sample[start:]
    ended, end, _ = scanning.count_rows(sample, rules.quote, rules.skips_empty)
    if end and is_cut:
        sample = sample[:end]
    is_whole = not is_quick or all_bytes <= QUICK_BYTES
    index = _index(name, rules, start, all_bytes) if is_whole else b""
    facts = FileFacts(
        name=name,
        size_bytes=stored.size_bytes,
        mark=stored.mark,
        checksum=scanning.crc32c(header + index),
        index=index,
    )
    rows = SpanIndex(index).records if is_whole else ended
    return Lines(facts=facts, rows=rows, start=start, header=header, sample=sample, is_whole=is_whole)


def _index(name: str, rules: LineRules, start: int, all_bytes: int) -> bytes:
    with open_content(name) as file:
        step = span_bytes(length_of(file), all_bytes)
        file.seek(start)
        return pack_spans(find_spans(file, step, _Finder(name, rules, start).find))


class _Finder:
    """Finds rows in one file, block by block, and knows where it is."""

    def __init__(self, name: str, rules: LineRules, start: int) -> None:
        self._name, self._rules, self._passed = name, rules, start

    def find(self, data: bytes, is_end: bool) -> tuple[int, int, int]:
        rules = self._rules
        rows, end, _ = scanning.count_rows(data, rules.quote, rules.skips_empty)
        if is_end and end < len(data):
            starts, _, is_open = scanning.row_bounds(data, rules.quote, rules.skips_empty, rows, 1)
            if is_open:
                raise self._unclosed(self._passed + end)
            rows, end = rows + len(starts), len(data)
        if not end and len(data) > _LONGEST_ROW:
            raise self._unclosed(self._passed)
        self._passed += end
        return end, rows, scanning.crc32c(memoryview(data)[:end])

    def _unclosed(self, offset: int) -> DataError:
        if self._rules.quote == NO_QUOTE:
            return DataError(
                f"{self._name} has no line end in the {_LONGEST_ROW >> 20} MiB from offset {offset} on",
                'it is no file of lines: say what it is by --data_reader_params="reader_type=…"',
            )
        with open_content(self._name) as file:
            line = line_at(file.read(offset), offset)
        return DataError(
            f"{self._name}, line {line}: a quote is opened in this row, or in one before it, and is never closed",
            'close it; a quote in a text is doubled (""); for a file without quoting: --data_reader_params="quote=none"',
        )


def read_whole_rows(
    read: Callable[[int], Text], rules: LineRules, count: int = SAMPLE_BYTES
) -> tuple[Text, bool]:
    """Return the beginning of a file, with the header and one row at least, and whether there is more.

    Parameters
    ----------
    read : callable
        (count) -> the first bytes, as many if there are so many.
    count : int
        How many are asked for at first.
    """
    while True:
        sample = read(count)
        is_cut = len(sample) == count
        second, _, _ = scanning.row_bounds(sample, rules.quote, rules.skips_empty, rules.has_header + 1, 1)
        if len(second) or not is_cut or count >= _LONGEST_ROW:
            return sample, is_cut
        count *= 8


def find_head(name: str, sample: bytes | memoryview, rules: LineRules) -> tuple[int, bytes]:
    """Return where the first record begins, and the header."""
    marks = bytes(sample[: len(BOM)])
    if marks.startswith(_UTF16):
        raise DataError(
            f"{name} is in UTF-16: it begins with the byte-order mark {marks[:2].hex(' ')} at offset 0",
            f"write it in UTF-8: iconv -f UTF-16 -t UTF-8 {name}",
        )
    start = len(BOM) if marks == BOM else 0
    if not rules.has_header:
        return start, b""
    starts, ends, is_open = scanning.row_bounds(sample[start:], rules.quote, True, 0, 1)
    if is_open:
        raise DataError(f"{name}, line 1: a quote is opened in the header, and is never closed", "close it")
    if not len(starts):
        return len(sample), b""
    end = start + int(ends[0])
    line_end = bytes(sample[end : end + 2]).partition(b"\n")  # or a carriage return and a newline
    return end + len(line_end[0]) + len(line_end[1]), bytes(sample[start + int(starts[0]) : end])


def read_spans(name: str, facts: FileFacts, content: Content, spans: list[Span]) -> memoryview:
    """Return the bytes of spans that follow one another, as they were when the job was planned.

    Raises
    ------
    DataError
        If they are others.
    """
    start = spans[0].start
    view = content.view(start, spans[-1].end)
    for span in spans:
        check_span(name, facts, span, scanning.crc32c(view[span.start - start : span.end - start]))
    return view


def line_at(data: "scanning.Data", offset: int) -> int:
    """Return the number of the line, from 1, that an offset lies in."""
    view = memoryview(data)
    blocks = range(0, offset, _COUNTED_BYTES)
    return 1 + sum(bytes(view[at : min(at + _COUNTED_BYTES, offset)]).count(b"\n") for at in blocks)

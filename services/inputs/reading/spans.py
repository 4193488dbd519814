"""Where the records of a file lie that can only be read from its beginning: an index of spans.

A span is some bytes with whole records in them, and a checksum.  Whoever wants records reads the spans that they are in,
and sees at once if these are not the bytes that the job was planned with.  Spans are about 256 KiB; longer in large files,
so that an index stays below 48 KiB: it is part of the plan.

What a record is, and what its checksum is of, its format says.
"""

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from edlz.services.errors import DataError
from edlz.services.inputs.reading.format import changed
from edlz.services.protocol.plan import FileFacts

__all__ = ["Span", "SpanIndex", "check_span", "find_spans", "pack_spans", "span_bytes"]

_LEAST_BYTES = 256 << 10
_MOST_OF_A_FILE = 4000  # 12 bytes each
_MOST_OF_A_JOB = 400_000
_ENTRY = np.dtype([("bytes", "<u4"), ("records", "<u4"), ("checksum", "<u4")])


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file, and the records in them."""

    start: int
    end: int
    first: int
    records: int
    checksum: int


def span_bytes(file_bytes: int, all_bytes: int) -> int:
    """Return how long the spans of a file are to be, of a job with so many bytes in all its files."""
    return max(_LEAST_BYTES, file_bytes // _MOST_OF_A_FILE + 1, all_bytes // _MOST_OF_A_JOB + 1)


def pack_spans(spans: Sequence[tuple[int, int, int]]) -> bytes:
    """Return an index of (bytes, records, checksum), in the order of the file."""
    return np.array(spans, _ENTRY).tobytes()


class SpanIndex:
    """The spans of one file.

    Parameters
    ----------
    start : int
        Where in the file the first one begins.

    Raises
    ------
    DataError
        If the index is none.
    """

    def __init__(self, packed: bytes, start: int = 0) -> None:
        if len(packed) % _ENTRY.itemsize:
            raise DataError(
                f"an index of {len(packed)} bytes is damaged: the plan does not say where the records of a file lie",
                "start the job anew: it is planned again",
            )
        entries = np.frombuffer(packed, _ENTRY)
        self._checksums: list[int] = entries["checksum"].tolist()
        # Where each span begins, and behind them where the last one ends.
        self._starts: list[int] = list(itertools.accumulate(entries["bytes"].tolist(), initial=start))
        self._firsts: list[int] = list(itertools.accumulate(entries["records"].tolist(), initial=0))

    @property
    def records(self) -> int:
        return self._firsts[-1]

    @property
    def end(self) -> int:
        """Behind the last byte of the last span."""
        return self._starts[-1]

    def holding(self, first: int, count: int) -> list[Span]:
        """Return the spans that hold some records, in their order.

        Raises
        ------
        IndexError
            If the file does not have all of them.
        """
        if first < 0 or count < 0 or first + count > self.records:
            raise IndexError(f"{count} records from {first} on are not among {self.records}")
        if not count:
            return []
        low = bisect_right(self._firsts, first) - 1
        high = bisect_right(self._firsts, first + count - 1)
        starts, firsts = self._starts, self._firsts
        return [
            Span(starts[at], starts[at + 1], firsts[at], firsts[at + 1] - firsts[at], self._checksums[at])
            for at in range(low, high)
        ]


def check_span(name: str, facts: FileFacts, span: Span, checksum: int) -> None:
    """Raise DataError if a span's bytes are not those that the job was planned with."""
    if checksum != span.checksum:
        error = changed(name, facts)
        raise DataError(f"{error.message}: bytes {span.start} to {span.end} differ", error.help)


def find_spans(
    file: IO[bytes],
    step: int,
    find: Callable[[bytes, bool], tuple[int, int, int]],
) -> list[tuple[int, int, int]]:
    """Read a file from where it stands to its end, a step at a time, and return its spans.

    Parameters
    ----------
    find : callable
        (data, is the end) -> of whole records at the data's beginning: bytes, records, checksum.  What is left comes
        again, with more behind it.
    """
    spans: list[tuple[int, int, int]] = []
    rest, is_end = b"", False
    while not is_end:
        block = file.read(max(step, len(rest)))
        is_end = not block
        data = rest + block
        used, records, checksum = find(data, is_end)
        if used:
            spans.append((used, records, checksum))
        rest = data[used:]
    return spans

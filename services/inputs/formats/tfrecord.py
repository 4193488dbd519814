"""TFRecord: byte strings one behind the other, each with checksums of its length and its data; also gzipped."""

from edlz.api.first_bytes import advice_for, describe_start
from edlz.core_ext import scanning
from edlz.services.errors import DataError
from edlz.services.inputs.reading.content import (
    QUICK_BYTES,
    Content,
    length_of,
    look,
    open_content,
    read_start,
    size_of,
)
from edlz.services.inputs.reading.format import Found, Request, unreadable
from edlz.services.inputs.reading.records import Order
from edlz.services.inputs.reading.spans import Span, SpanIndex, check_span, find_spans, pack_spans, span_bytes
from edlz.services.protocol.plan import DataSource, FileFacts

__all__ = ["FORMAT"]

_HEAD_BYTES = 12
_LOOKED_AT = 4096  # what a file of another format is known by
_AGAIN = "get the file again from where it was written, or write it again"
_WHAT = {
    scanning.BAD_LENGTH: "the checksum of the length of record {number}, at offset {offset}, does not fit it",
    scanning.BAD_DATA: "the checksum of record {number}, at offset {offset}, does not fit its data",
}


class TFRecord:
    """The format."""

    name = "TFRecord"
    suffixes = (".tfrecord", ".tfrecords")
    params: dict[str, str] = {}

    def find(self, request: Request) -> Found:
        try:
            all_bytes = sum(map(size_of, request.files))
            if request.is_quick and all_bytes > QUICK_BYTES:
                return Found(
                    counts=[_first_record(name) for name in request.files],
                    facts=[FileFacts(name=name, size_bytes=size_of(name)) for name in request.files],
                    is_counted=False,
                )
            facts = [_index(name, all_bytes) for name in request.files]
        except OSError as error:
            raise unreadable(str(error.filename), error) from error
        return Found(counts=[SpanIndex(one.index).records for one in facts], facts=facts)

    def open(self, name: str, source: DataSource, facts: FileFacts | None) -> "OpenTFRecord":
        return OpenTFRecord(name, facts or _index(name))


class OpenTFRecord:
    """An open file."""

    def __init__(self, name: str, facts: FileFacts) -> None:
        self._name, self._facts = name, facts
        self._content = Content(name, facts)
        self._index = SpanIndex(facts.index)

    def __len__(self) -> int:
        return self._index.records

    def read(self, first: int, count: int, order: Order | None = None) -> list[bytes]:
        found: list[bytes] = []
        for span in self._index.holding(first, count):
            low = max(first - span.first, 0)
            high = min(first + count - span.first, span.records)
            found += self._read(span, low, high - low)
        return found if order is None else [found[place] for place in order.tolist()]

    def close(self) -> None:
        self._content.close()

    def _read(self, span: Span, first: int, count: int) -> list[bytes]:
        data = self._content.view(span.start, span.end)
        records, _, checksum, _ = scanning.hop_records(data, 0, len(data))
        if records != span.records:
            checksum = ~span.checksum
        check_span(self._name, self._facts, span, checksum)
        starts, ends, at, error = scanning.record_bounds(data, first, count)
        if error:
            raise _damaged(self._name, error, span.first + first + len(starts), span.start + at)
        return scanning.slices(data, starts, ends)


def _index(name: str, all_bytes: int = 0) -> FileFacts:
    """Return what a file is like, and where its records lie."""
    passed = [0, 0]  # records and bytes

    def find(data: bytes, is_end: bool) -> tuple[int, int, int]:
        records, end, checksum, error = scanning.hop_records(data, 0, len(data))
        if error and (is_end or error != scanning.CUT_OFF):
            raise _damaged(name, error, passed[0] + records, passed[1] + end)
        passed[0], passed[1] = passed[0] + records, passed[1] + end
        return end, records, checksum

    stored = look(name)
    with open_content(name) as file:
        index = pack_spans(find_spans(file, span_bytes(length_of(file), all_bytes), find))
    return FileFacts(
        name=name,
        size_bytes=stored.size_bytes,
        checksum=scanning.crc32c(index),
        index=index,
        mark=stored.mark,
    )


def _first_record(name: str) -> int:
    """Return 1 if a file begins with a record, as far as its length tells; 0 if it is empty."""
    start = read_start(name, _HEAD_BYTES)
    if start:
        _, _, _, error = scanning.hop_records(start, 0, 1)
        if error == scanning.BAD_LENGTH:
            raise _damaged(name, error, 0, 0)
    return int(bool(start))


def _damaged(name: str, error: int, number: int, offset: int) -> DataError:
    if not number:
        start = read_start(name, _LOOKED_AT)
        told = describe_start(start)
        if not told.endswith(("a TFRecord file", "an unknown format")):
            return DataError(f"{name} is not TFRecord ({told})", advice_for(start))
    if error == scanning.CUT_OFF:
        return DataError(f"{name} is cut off: record {number}, at offset {offset}, is not all there", _AGAIN)
    what = _WHAT[error].format(number=number, offset=offset)
    return DataError(f"{name} is {'damaged' if number else 'damaged, or not TFRecord'}: {what}", _AGAIN)


FORMAT = TFRecord()

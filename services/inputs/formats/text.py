"""Text: each line is a record, as bytes without its line end; also gzipped."""

from edlz.core_ext import scanning
from edlz.services.inputs.reading.content import Content, size_of
from edlz.services.inputs.reading.format import Found, Request, unreadable
from edlz.services.inputs.reading.lines import NO_QUOTE, LineRules, find_head, index_lines, read_spans
from edlz.services.inputs.reading.records import Order
from edlz.services.inputs.reading.spans import SpanIndex
from edlz.services.protocol.plan import DataSource, FileFacts

__all__ = ["FORMAT"]

_RULES = LineRules(quote=NO_QUOTE, skips_empty=False)
_MARK_BYTES = 4  # a byte-order mark is shorter


class Text:
    """The format."""

    name = "Text"
    suffixes = (".txt", ".jsonl", ".ndjson")
    params: dict[str, str] = {}

    def find(self, request: Request) -> Found:
        try:
            all_bytes = sum(map(size_of, request.files))
            found = [
                index_lines(name, _RULES, all_bytes, is_quick=request.is_quick) for name in request.files
            ]
        except OSError as error:
            raise unreadable(str(error.filename), error) from error
        return Found(
            counts=[one.rows for one in found],
            facts=[one.facts for one in found],
            is_counted=all(one.is_whole for one in found),
        )

    def open(self, name: str, source: DataSource, facts: FileFacts | None) -> "OpenText":
        return OpenText(name, facts or index_lines(name, _RULES).facts)


class OpenText:
    """An open file."""

    def __init__(self, name: str, facts: FileFacts) -> None:
        self._name, self._facts = name, facts
        self._content = Content(name, facts)
        start, _ = find_head(name, self._content.view(0, _MARK_BYTES), _RULES)
        self._index = SpanIndex(facts.index, start)

    def __len__(self) -> int:
        return self._index.records

    def read(self, first: int, count: int, order: Order | None = None) -> list[bytes]:
        spans = self._index.holding(first, count)
        if not spans:
            return []
        data = read_spans(self._name, self._facts, self._content, spans)
        bounds = scanning.row_bounds(data, NO_QUOTE, False, first - spans[0].first, count)
        starts, ends, _ = bounds
        return (
            scanning.slices(data, starts, ends)
            if order is None
            else scanning.slices(data, starts[order], ends[order])
        )

    def close(self) -> None:
        self._content.close()


FORMAT = Text()

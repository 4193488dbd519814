"""RecordIO: numbered byte strings in checked chunks; `api.recordio` knows the bytes."""

from edlz.api.recordio import Reader as RecordIOReader
from edlz.api.recordio import RecordIOError, Summary, summarise
from edlz.services.errors import DataError
from edlz.services.inputs.reading.format import Found, Request, changed, unreadable
from edlz.services.inputs.reading.records import Order
from edlz.services.protocol.plan import DataSource, FileFacts

__all__ = ["FORMAT"]

CACHE_BYTES = 16 << 20  # decompressed chunks, of each open file


class RecordIO:
    """The format."""

    name = "RecordIO"
    suffixes = (".recordio",)
    params: dict[str, str] = {}

    def find(self, request: Request) -> Found:
        summaries = [_summarised(name) for name in request.files]
        facts = [
            FileFacts(name=name, size_bytes=about.size_bytes, checksum=about.checksum)
            for name, about in zip(request.files, summaries, strict=True)
        ]
        return Found(counts=[about.records for about in summaries], facts=facts)

    def open(self, name: str, source: DataSource, facts: FileFacts | None) -> "OpenRecordIO":
        try:
            return OpenRecordIO(name, facts)
        except RecordIOError as error:
            raise DataError(error.message, error.help) from error


class OpenRecordIO:
    """An open file."""

    def __init__(self, name: str, facts: FileFacts | None) -> None:
        self._reader = RecordIOReader(name, cache_bytes=CACHE_BYTES)
        if facts is not None and self._reader.checksum != facts.checksum:
            self._reader.close()
            raise changed(name, facts)

    def __len__(self) -> int:
        return len(self._reader)

    def read(self, first: int, count: int, order: Order | None = None) -> list[bytes]:
        try:
            if order is None:
                return self._reader.read(first, count)
            return self._reader.take(order + first)  # of a chunk, only these
        except RecordIOError as error:
            raise DataError(error.message, error.help) from error

    def close(self) -> None:
        self._reader.close()


def _summarised(name: str) -> Summary:
    try:
        return summarise(name)
    except RecordIOError as error:
        raise DataError(error.message, error.help) from error
    except OSError as error:
        raise unreadable(name, error) from error


FORMAT = RecordIO()

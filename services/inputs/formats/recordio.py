"""RecordIO: numbered byte strings in checked chunks; `api.recordio` knows the bytes."""

from edlz.api.recordio import Reader as RecordIOReader
from edlz.api.recordio import RecordIOError, summarise
from edlz.services.configuration.data_addresses import is_address
from edlz.services.errors import DataError
from edlz.services.inputs.places.remote_bytes import RemoteBytes
from edlz.services.inputs.reading.content import as_planned, look
from edlz.services.inputs.reading.format import Found, Request, changed, unreadable
from edlz.services.inputs.reading.records import Order
from edlz.services.protocol.plan import DataSource, FileFacts

__all__ = ["FORMAT"]

CACHE_BYTES = 16 << 20  # decompressed chunks, of each open file
MOST_INDEX_BYTES = (
    256 << 10
)  # of a file, in the plan; of one with more chunks each worker reads their headers


class RecordIO:
    """The format."""

    name = "RecordIO"
    suffixes = (".recordio",)
    params: dict[str, str] = {}

    def find(self, request: Request) -> Found:
        found = [_summarised(name) for name in request.files]
        return Found(counts=[records for records, _ in found], facts=[facts for _, facts in found])

    def open(self, name: str, source: DataSource, facts: FileFacts | None) -> "OpenRecordIO":
        try:
            return OpenRecordIO(name, facts)
        except RecordIOError as error:
            raise DataError(error.message, error.help) from error


class OpenRecordIO:
    """An open file."""

    def __init__(self, name: str, facts: FileFacts | None) -> None:
        if is_address(name):
            stored, index = (look(name), b"") if facts is None else (as_planned(name, facts), facts.index)
            source = RemoteBytes(stored)
            self._reader = RecordIOReader(name, cache_bytes=CACHE_BYTES, source=source, index=index)
        else:
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


def _summarised(name: str) -> tuple[int, FileFacts]:
    """Return a file's number of records, and what it is like; of one elsewhere also where its chunks are."""
    try:
        if not is_address(name):
            about = summarise(name)
            facts = FileFacts(name=name, size_bytes=about.size_bytes, checksum=about.checksum)
            return about.records, facts
        stored = look(name)
        about = summarise(name, RemoteBytes(stored))
        index = about.index if len(about.index) <= MOST_INDEX_BYTES else b""
        size, checksum = about.size_bytes, about.checksum
        facts = FileFacts(name=name, size_bytes=size, checksum=checksum, index=index, mark=stored.mark)
        return about.records, facts
    except RecordIOError as error:
        raise DataError(error.message, error.help) from error
    except OSError as error:
        raise unreadable(name, error) from error


FORMAT = RecordIO()

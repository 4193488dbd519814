"""RecordIO files: numbered records (byte strings) in checked chunks.

    with Writer("data-00000") as writer:
        writer.write(b"one record")
    with Reader("data-00000") as reader:
        records = reader.read(0, len(reader))

The format is that of pyrecordio 0.0.6 and 0.0.7, so files go both ways; files of pyrecordio 0.0.4, whose
format is another, are recognised and read.  A file that is damaged, cut off or of another kind raises
`RecordIOError`, which names file and offset; no record is left out silently.  (The format keeps no total: a
file cut exactly between two chunks looks whole.)

This module owns reading; `_recordio_writer` writes, `_recordio_format` knows the bytes.  What a record means
is the model's business (`feed`).
"""

import mmap
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from edlz.api._recordio_format import (
    ChunkIndex,
    RecordIOError,
    Records,
    decode_chunk,
    read_index,
    unpack_index,
)
from edlz.api._recordio_writer import Writer
from edlz.api.first_bytes import Ranges

__all__ = ["Reader", "RecordIOError", "Summary", "Writer", "count_records", "summarise"]


class Reader:
    """Reads a RecordIO file of either format by record numbers; any thread may call it.

    The file is mapped, not read: it must not be shortened in the meantime.  A chunk's checksum is
    checked when one of its records is first asked for.

    Parameters
    ----------
    path : str or path
    cache_bytes : int
        Bound on decompressed chunks and record positions kept; the newest chunk is always kept.
    source : Ranges, optional
        The file's bytes, if it lies elsewhere; `path` is only its name then.
    index : bytes, optional
        What a summary of the file says: its chunks' headers are not read again.

    Raises
    ------
    OSError
        If the file cannot be opened.
    RecordIOError
        If its chunks do not fill it exactly, or it is not RecordIO.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cache_bytes: int = 64 << 20,
        source: Ranges | None = None,
        index: bytes = b"",
    ) -> None:
        self.path = os.fspath(path)
        self._source: mmap.mmap | Ranges | None
        if source is None:
            self._source, self._index = _open(self.path)
        else:
            self._source = source
            self._index = unpack_index(index, self.path) if index else read_index(source, self.path)
        self._is_checked = bytearray(len(self._index.offsets))
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[int, Records] = OrderedDict()  # least recently used first
        self._cached_bytes = 0  # sum of nbytes over _cache
        self._lock = threading.Lock()  # guards the two above

    def __len__(self) -> int:
        return self._index.record_count

    @property
    def checksum(self) -> int:
        """Of the chunks' headers, which have the checksums of all records: another content has another one."""
        return self._index.checksum

    def read(self, first: int, count: int) -> list[bytes]:
        """Return records `first`, `first + 1`, ...

        Raises
        ------
        IndexError
            If the file does not have all of them.
        RecordIOError
            If a chunk is damaged.
        ValueError
            If the reader is closed.
        """
        if first < 0 or count < 0 or first + count > len(self):
            raise IndexError(
                f"{self.path} has {len(self)} records; {count} from number {first} are not there"
            )
        records: list[bytes] = []
        bounds = self._index.first_records
        chunk = int(np.searchsorted(bounds, first, side="right")) - 1
        while len(records) < count:
            lo = first + len(records) - int(bounds[chunk])
            hi = min(first + count, int(bounds[chunk + 1])) - int(bounds[chunk])
            if hi > lo:  # not an empty chunk
                records += self._records(chunk).slice(lo, hi)
            chunk += 1
        return records

    def take(self, numbers: npt.NDArray[np.int64]) -> list[bytes]:
        """Return the records of these numbers, in this order; a number may occur more than once.

        Parameters
        ----------
        numbers : ndarray, shape (k,), int64

        Raises
        ------
        IndexError, RecordIOError, ValueError
            As for `read`.
        """
        numbers = np.asarray(numbers, np.int64)
        if not len(numbers):
            return []
        if int(numbers.min()) < 0 or int(numbers.max()) >= len(self):
            raise IndexError(
                f"{self.path} has {len(self)} records; numbers {numbers.min()} to {numbers.max()} "
                "are not all there"
            )
        bounds = self._index.first_records
        chunks = np.searchsorted(bounds, numbers, side="right") - 1
        local = numbers - bounds[chunks]
        if (chunks == chunks[0]).all():
            return self._records(int(chunks[0])).take(local)
        order = np.argsort(chunks, kind="stable")
        pieces = np.split(order, np.flatnonzero(np.diff(chunks[order])) + 1)
        records = [b""] * len(numbers)
        for places in pieces:
            taken = self._records(int(chunks[places[0]])).take(local[places])
            for place, record in zip(places.tolist(), taken, strict=True):
                records[place] = record
        return records

    def close(self) -> None:
        """Let go of the file.  A read that is under way in another thread still ends."""
        # mmap.close() would fail while a view of it exists; the last reference unmaps it.
        self._source = None
        with self._lock:
            self._cache.clear()
            self._cached_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _records(self, chunk: int) -> Records:
        source = self._source
        if source is None:
            raise ValueError(f"the reader of {self.path} is closed; make a new one")
        with self._lock:
            records = self._cache.get(chunk)
            if records is not None:
                self._cache.move_to_end(chunk)
                return records
        # Outside of the lock: two threads may decode the same chunk, which costs time only.
        records = decode_chunk(source, self._index, chunk, check_crc=not self._is_checked[chunk])
        self._is_checked[chunk] = 1
        self._keep(chunk, records)
        return records

    def _keep(self, chunk: int, records: Records) -> None:
        with self._lock:
            if chunk in self._cache or self._source is None:
                return
            self._cache[chunk] = records
            self._cached_bytes += records.nbytes
            while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
                _, oldest = self._cache.popitem(last=False)
                self._cached_bytes -= oldest.nbytes


def count_records(path: str | os.PathLike[str]) -> int:
    """Return how many records a RecordIO file has, by its chunk headers alone.

    Raises
    ------
    OSError
        If the file cannot be opened.
    RecordIOError
        If its chunks do not fill it exactly, or it is not RecordIO.
    """
    return summarise(path).records


@dataclass(frozen=True, slots=True)
class Summary:
    """Of a file, by its chunk headers alone; `checksum` as of a Reader, `index` for one."""

    records: int
    size_bytes: int
    checksum: int
    index: bytes = field(repr=False)


def summarise(path: str | os.PathLike[str], source: Ranges | None = None) -> Summary:
    """Return what a RecordIO file is like; `source`: its bytes, if it lies elsewhere.

    Raises
    ------
    OSError, RecordIOError
        As for `count_records`.
    """
    name = os.fspath(path)
    if source is None:
        content, index = _open(name, is_header_walk=True)
        size = len(content)
    else:
        size, index = len(source), read_index(source, name)
    return Summary(index.record_count, size, index.checksum, index.packed())


def _open(path: str, *, is_header_walk: bool = False) -> tuple[mmap.mmap, ChunkIndex]:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # cannot be mapped
            read_index(b"", path)
        source = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if is_header_walk and hasattr(source, "madvise"):
        source.madvise(mmap.MADV_RANDOM)  # no read-ahead into the bodies
    return source, read_index(source, path)

"""The bytes of a RecordIO file: headers, the index of chunks, the records in a chunk.

A file is chunks back to back, nothing before, between or after.  A chunk is five little-endian uint32
and a body:

    current (pyrecordio 0.0.6, 0.0.7)   magic, CRC-32 of the body, compressor, body bytes, records
    old (pyrecordio 0.0.4)              magic, records, CRC-32C of the body, compressor, body bytes

The CRC is of the body as stored.  Uncompressed, a body is for each record its length (uint32) and its
bytes.  Nothing protects a header, so what it says is checked against the file and against the body.
Snappy is a stream of frames in the current format, one raw block in the old one.

This module reads buffers; files and caches are not its business.
"""

import gzip
import mmap
import struct
import zlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edlz.api.first_bytes import ByteSource, Mapped, advice_for, describe_start

__all__ = [
    "COMPRESSORS",
    "HEADER",
    "LENGTH",
    "MAGIC",
    "ChunkIndex",
    "RecordIOError",
    "Records",
    "decode_chunk",
    "read_index",
    "unpack_index",
]

MAGIC = 0x01020304
HEADER = struct.Struct("<5I")
LENGTH = struct.Struct("<I")
REWRITE = "restore this file from a good copy, or write it again"
COMPRESSORS = {"none": 0, "snappy": 1, "gzip": 2}
_LEGACY_COMPRESSORS = range(1, 4)  # the same, counted from 1
# A strided view needs an item size that fits NumPy's C int; larger records are rare enough to loop.
_MAX_STRIDED_BYTES = 1 << 30
_OBJECT_BYTES = 512  # of a Records object itself, roughly; it counts where chunks are tiny


class RecordIOError(ValueError):
    """A file is damaged, cut off, or not RecordIO at all.

    Parameters
    ----------
    path : str
        The file.
    offset : int
        Where in it, in bytes: the chunk that is wrong.
    message : str
        What is wrong, with file and offset.
    help : str
        What to do.
    """

    def __init__(self, path: str, offset: int, message: str, help: str) -> None:  # noqa: A002
        super().__init__(path, offset, message, help)
        self.path = path
        self.offset = offset
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message}; {self.help}"


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """Where a file's chunks lie; one entry a chunk in each array.

    Attributes
    ----------
    offsets : ndarray, int64
        Of the headers, in bytes.
    body_bytes, record_counts, crcs, compressors : ndarray, int64
        What the headers say; the compressors are in the current format's numbers.
    first_records : ndarray, shape (chunks + 1,), int64
        Number of the first record of each chunk; the last entry is the number of records in the file.
    """

    path: str
    is_legacy: bool
    offsets: npt.NDArray[np.int64]
    body_bytes: npt.NDArray[np.int64]
    record_counts: npt.NDArray[np.int64]
    crcs: npt.NDArray[np.int64]
    compressors: npt.NDArray[np.int64]
    first_records: npt.NDArray[np.int64]

    @property
    def record_count(self) -> int:
        return int(self.first_records[-1])

    @property
    def checksum(self) -> int:
        """Of all headers."""
        crc = 0
        for numbers in (self.body_bytes, self.record_counts, self.crcs, self.compressors):
            crc = zlib.crc32(numbers.tobytes(), crc)
        return crc

    def packed(self) -> bytes:
        """Return the index as bytes, for `unpack_index`."""
        columns = (self.body_bytes, self.record_counts, self.crcs, self.compressors)
        return bytes([self.is_legacy]) + np.stack(columns).astype("<u4").tobytes()


class Records(Protocol):
    """The records of one chunk, ready to be copied out."""

    nbytes: int  # held in memory for them, beside the mapped file

    def slice(self, first: int, stop: int) -> list[bytes]: ...
    def take(self, numbers: npt.NDArray[np.int64]) -> list[bytes]: ...


def read_index(source: ByteSource, path: str) -> ChunkIndex:
    """Hop from header to header and return where the chunks are.  Bodies are not read.

    Raises
    ------
    RecordIOError
        If the chunks do not fill the file exactly, or it is not RecordIO.
    """
    is_legacy = _check_start(source, path)
    size, offset = len(source), 0
    rows: list[tuple[int, int, int, int, int]] = []
    while offset < size:
        body_bytes, records, crc, compressor = _read_header(source, path, offset, is_legacy)
        rows.append((offset, body_bytes, records, crc, compressor))
        offset += HEADER.size + body_bytes
    offsets, lengths, counts, crcs, compressors = np.array(rows, np.int64).T
    first_records = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=first_records[1:])
    return ChunkIndex(path, is_legacy, offsets, lengths, counts, crcs, compressors, first_records)


def unpack_index(packed: bytes, path: str) -> ChunkIndex:
    """Return the index that `ChunkIndex.packed` has written."""
    columns = np.frombuffer(packed, "<u4", offset=1).astype(np.int64).reshape(4, -1)
    lengths, counts, crcs, compressors = columns
    bounds = np.zeros((2, columns.shape[1] + 1), np.int64)
    np.cumsum(counts, out=bounds[0, 1:])
    np.cumsum(lengths + HEADER.size, out=bounds[1, 1:])
    return ChunkIndex(path, bool(packed[0]), bounds[1, :-1], lengths, counts, crcs, compressors, bounds[0])


def decode_chunk(source: ByteSource, index: ChunkIndex, chunk: int, *, check_crc: bool = True) -> Records:
    """Return the records of a chunk.

    Raises
    ------
    RecordIOError
        If its checksum does not fit, it cannot be decompressed, or the records do not fill it exactly.
    """
    offset, body_bytes = int(index.offsets[chunk]), int(index.body_bytes[chunk])
    start = offset + HEADER.size
    if not isinstance(source, bytes | mmap.mmap):
        source, start = source[start : start + body_bytes], 0
    body = memoryview(source)[start : start + body_bytes]
    try:
        if check_crc and (_crc32c if index.is_legacy else zlib.crc32)(body) != int(index.crcs[chunk]):
            raise RecordIOError(
                index.path,
                offset,
                f"{index.path} is damaged: the checksum of the chunk at offset {offset} "
                f"({body_bytes} bytes) does not fit its content",
                REWRITE,
            )
        count, compressor = int(index.record_counts[chunk]), int(index.compressors[chunk])
        if compressor == COMPRESSORS["none"]:
            return _split(source, start, start + body_bytes, count, index.path, offset)
        plain = gzip.decompress(body) if compressor == COMPRESSORS["gzip"] else _unsnap(body, index.is_legacy)
    except ImportError as error:
        raise RecordIOError(
            index.path,
            offset,
            f"{index.path} (the chunk at offset {offset}) cannot be read without the package {error.name}: "
            f"{'it has the old RecordIO format' if index.is_legacy else 'it is compressed with Snappy'}",
            "pip install pyrecordio==0.0.4",
        ) from error
    except (OSError, EOFError, zlib.error, _SnappyError) as error:
        raise RecordIOError(
            index.path,
            offset,
            f"{index.path} is damaged: the chunk at offset {offset} cannot be decompressed ({error})",
            REWRITE,
        ) from error
    return _split(plain, 0, len(plain), count, index.path, offset)


class _FixedRecords:
    """Records of one length: a strided view, copied out by NumPy at memory speed."""

    def __init__(self, source: Mapped, start: int, length: int, count: int) -> None:
        self.nbytes = _OBJECT_BYTES + (len(source) if isinstance(source, bytes) else 0)
        self._view = np.ndarray(
            (count,), f"V{length}", source, offset=start + LENGTH.size, strides=(length + LENGTH.size,)
        )

    def slice(self, first: int, stop: int) -> list[bytes]:
        records: list[bytes] = self._view[first:stop].tolist()
        return records

    def take(self, numbers: npt.NDArray[np.int64]) -> list[bytes]:
        records: list[bytes] = self._view[numbers].tolist()
        return records


class _VariableRecords:
    """Records of differing lengths: their bounds, and the bytes they are cut from."""

    def __init__(self, source: Mapped, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> None:
        self.nbytes = _OBJECT_BYTES + starts.nbytes + stops.nbytes
        self.nbytes += len(source) if isinstance(source, bytes) else 0
        self._source, self._starts, self._stops = source, starts, stops

    def slice(self, first: int, stop: int) -> list[bytes]:
        return self._cut(self._starts[first:stop], self._stops[first:stop])

    def take(self, numbers: npt.NDArray[np.int64]) -> list[bytes]:
        return self._cut(self._starts[numbers], self._stops[numbers])

    def _cut(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> list[bytes]:
        source = self._source
        return [source[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]


def _check_start(source: ByteSource, path: str) -> bool:
    """Return whether the file has the old format; raise if it has neither."""
    size = len(source)
    if size == 0:
        raise RecordIOError(path, 0, f"{path} is empty (0 bytes at offset 0)", "remove it, or write it again")
    magic = LENGTH.pack(MAGIC)
    if source[: LENGTH.size] != magic[:size]:
        message = f"{path} is not RecordIO ({describe_start(source)})"
        raise RecordIOError(path, 0, message, advice_for(source))
    if size < HEADER.size:
        raise _cut_off_header(path, 0, size)
    # In the current order of fields this one is the body's length, and none of a valid chunk is 1 to 3.
    return HEADER.unpack(source[: HEADER.size])[3] in _LEGACY_COMPRESSORS


def _read_header(source: ByteSource, path: str, offset: int, is_legacy: bool) -> tuple[int, int, int, int]:
    """Return body bytes, number of records, CRC and compressor of the chunk at this offset."""
    rest = len(source) - offset - HEADER.size
    if rest < 0:
        raise _cut_off_header(path, offset, rest + HEADER.size)
    header = source[offset : offset + HEADER.size]
    if is_legacy:
        magic, records, crc, compressor, body_bytes = HEADER.unpack(header)
        compressor -= _LEGACY_COMPRESSORS.start
    else:
        magic, crc, compressor, body_bytes, records = HEADER.unpack(header)
    if magic != MAGIC:
        raise RecordIOError(
            path,
            offset,
            f"{path} is damaged: a chunk should begin at offset {offset}, "
            f"but there is {magic:#010x} in place of {MAGIC:#010x}",
            REWRITE,
        )
    if body_bytes > rest:
        raise RecordIOError(
            path,
            offset,
            f"{path} is cut off: the chunk at offset {offset} needs {body_bytes} bytes, only {rest} are there",
            REWRITE,
        )
    # Each record has a length of 4 bytes, so an uncompressed body bounds their number.  An empty chunk is
    # never touched again, so it is checked here.
    is_crowded = compressor == COMPRESSORS["none"] and records * LENGTH.size > body_bytes
    is_half_empty = (records == 0) != (body_bytes == 0) or (body_bytes == 0 and crc != 0)
    if compressor not in COMPRESSORS.values() or is_crowded or is_half_empty:
        raise RecordIOError(
            path,
            offset,
            f"{path} is damaged: the chunk header at offset {offset} makes no sense "
            f"(compressor {compressor}, {body_bytes} bytes, {records} records)",
            REWRITE,
        )
    return body_bytes, records, crc, compressor


def _cut_off_header(path: str, offset: int, rest: int) -> RecordIOError:
    return RecordIOError(
        path,
        offset,
        f"{path} is cut off: at offset {offset} only {rest} of the {HEADER.size} bytes of a chunk header "
        "are there",
        REWRITE,
    )


class _SnappyError(Exception):
    """A Snappy stream is not well formed."""


def _unsnap(body: memoryview, is_raw: bool) -> bytes:
    import cramjam  # comes with pyrecordio, through python-snappy

    decompress = cramjam.snappy.decompress_raw if is_raw else cramjam.snappy.decompress
    try:
        return bytes(decompress(body))
    except cramjam.DecompressionError as error:
        raise _SnappyError(str(error)) from error


def _crc32c(body: memoryview) -> int:
    from crc32c import crc32c  # comes with pyrecordio

    crc: int = crc32c(body)
    return crc


def _split(source: Mapped, start: int, stop: int, count: int, path: str, offset: int) -> Records:
    """Find the records between two positions of `source`; `offset` is the chunk's, for errors."""
    length = LENGTH.unpack_from(source, start)[0] if count and stop - start >= LENGTH.size else 0
    if 0 < length < _MAX_STRIDED_BYTES and count * (length + LENGTH.size) == stop - start:
        lengths = np.ndarray((count,), "<u4", source, offset=start, strides=(length + LENGTH.size,))
        if count == 1 or (lengths == length).all():
            return _FixedRecords(source, start, length, count)
    starts, end = _record_starts(source, start, stop, count)
    if len(starts) < count or end != stop:
        raise RecordIOError(
            path,
            offset,
            f"{path} is damaged: the chunk at offset {offset} says that it has {count} records, "
            f"but its {stop - start} bytes do not hold exactly these",
            REWRITE,
        )
    stops = np.append(starts[1:] - LENGTH.size, stop)[:count]
    return _VariableRecords(source, starts, stops)


def _record_starts(source: Mapped, start: int, stop: int, count: int) -> tuple[npt.NDArray[np.int64], int]:
    """Hop from length to length; return where the records begin and where the last one ends.

    Fewer than `count` positions mean that the next length would lie outside of the body.
    """
    starts: list[int] = []
    unpack, step, position = LENGTH.unpack_from, LENGTH.size, start
    last = stop - step
    for _ in range(count):
        if position > last:
            break
        (length,) = unpack(source, position)
        position += step
        starts.append(position)
        position += length
    return np.array(starts, np.int64), position

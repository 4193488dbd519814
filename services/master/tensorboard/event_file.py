"""Event files of TensorBoard: scalars by step, written and, as far as it takes to go on with them, read.

A file is a sequence of TFRecords: length (8 bytes), its checksum, data, its checksum; checksums are CRC-32C, masked.  The data
is an `Event` of Protocol Buffers, of which a scalar needs four fields:

    Event:   1 wall_time (double)  2 step (int64)  3 file_version (string)  5 summary (Summary)
    Summary: 1 value (Value, repeated)        Value: 1 tag (string)  2 simple_value (float)

References
----------
tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto, tensorflow/core/lib/io/record_writer.h
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from edlz.core_ext.scanning import crc32c

__all__ = ["first_record", "last_step", "scalars_record"]

VERSION = "brain.Event:2"
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8
_MOST_BYTES = 1 << 24  # of a record: more is damage
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


def first_record(at: float) -> bytes:
    """Return the record that a file begins with; `at`: seconds since the epoch."""
    return _record(_double(1, at) + _bytes(3, VERSION.encode()))


def scalars_record(at: float, step: int, values: Mapping[str, float]) -> bytes:
    """Return the record of some scalars of one step."""
    summary = b"".join(
        _bytes(1, _bytes(1, tag.encode()) + _key(2, _FIXED32) + struct.pack("<f", value))
        for tag, value in values.items()
    )
    return _record(_double(1, at) + _key(2, _VARINT) + _varint(step) + _bytes(5, summary))


def last_step(path: Path) -> int:
    """Return the greatest step of a file; -1 if it has none.  What is damaged, and all behind it, is passed over."""
    try:
        data = path.read_bytes()
    except OSError:
        return -1
    return max((step for step in map(_step_of, _records(data)) if step is not None), default=-1)


# ---------------------------------------------------------------- writing


def _record(data: bytes) -> bytes:
    length = _LENGTH.pack(len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return _CHECKSUM.pack((((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF)


def _key(field: int, kind: int) -> bytes:
    return bytes([field << 3 | kind])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _double(field: int, value: float) -> bytes:
    return _key(field, _FIXED64) + struct.pack("<d", value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


# ---------------------------------------------------------------- reading


def _records(data: bytes) -> Iterator[bytes]:
    place = 0
    while place + 12 <= len(data):
        head = data[place : place + 8]
        (length,) = _LENGTH.unpack(head)
        end = place + 12 + length
        if length > _MOST_BYTES or end + 4 > len(data) or data[place + 8 : place + 12] != _masked(head):
            return
        content = data[place + 12 : end]
        if data[end : end + 4] != _masked(content):
            return
        yield content
        place = end + 4


def _step_of(event: bytes) -> int | None:
    """Return the step of an event that has a summary."""
    place, step, has_summary = 0, 0, False
    while place < len(event):
        field, kind, place = event[place] >> 3, event[place] & 7, place + 1
        if kind == _VARINT:
            number, place = _read_varint(event, place)
            step = number if field == 2 else step
        elif kind == _BYTES:
            length, place = _read_varint(event, place)
            place += length
            has_summary |= field == 5
        elif kind in (_FIXED64, _FIXED32):
            place += 8 if kind == _FIXED64 else 4
        else:
            return None
    return step if has_summary else None


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(data):
        byte, place = data[place], place + 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return number, place

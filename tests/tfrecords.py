"""TFRecord files, written without TensorFlow."""

import struct

from edlz.core_ext.scanning import crc32c

__all__ = ["tfrecord"]


def tfrecord(records: list[bytes]) -> bytes:
    """Return the content of a file of these records."""
    heads = [struct.pack("<Q", len(record)) for record in records]
    return b"".join(h + _masked(h) + r + _masked(r) for h, r in zip(heads, records, strict=True))


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

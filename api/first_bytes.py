"""Names the format of a file that is not of the one that was meant, by its first bytes.

A wrong path is the likeliest mistake a user makes; the error should say what lies there instead.
"""

import codecs
import mmap
import struct
from typing import Protocol

__all__ = ["ByteSource", "Mapped", "Ranges", "advice_for", "describe_start", "is_no_text"]


class Ranges(Protocol):
    """Bytes that lie elsewhere: a slice of them is fetched."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes: ...


Mapped = bytes | mmap.mmap
ByteSource = Mapped | Ranges  # slices of any are bytes

_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", '"PK"', "a zip file"),
    (b"PK\x05\x06", '"PK"', "an empty zip file"),
    (b"\x1f\x8b", "1f 8b", "a gzip file"),
    (b"BZh", '"BZh"', "a bzip2 file"),
    (b"\xfd7zXZ\x00", '"7zXZ"', "an xz file"),
    (b"\x28\xb5\x2f\xfd", "28 b5 2f fd", "a zstd file"),
    (b"7z\xbc\xaf", '"7z"', "a 7z archive"),
    (b"PAR1", '"PAR1"', "a Parquet file"),
    (b"\x04\x03\x02\x01", "04 03 02 01", "a RecordIO file"),
    (b"ARROW1", '"ARROW1"', "an Arrow file"),
    (b"ORC", '"ORC"', "an ORC file"),
    (b"Obj\x01", '"Obj"', "an Avro file"),
    (b"\x89HDF", '"HDF"', "an HDF5 file"),
    (b"\x93NUMPY", '"NUMPY"', "a NumPy array"),
    (b"SQLite format 3\x00", '"SQLite"', "an SQLite database"),
    (b"\x89PNG", '"PNG"', "a PNG image"),
    (b"\xff\xd8\xff", "ff d8 ff", "a JPEG image"),
    (b"\x00\x00\x08\x01", "00 00 08 01", "IDX labels"),
    (b"\x00\x00\x08\x03", "00 00 08 03", "IDX images"),
)
_PACKED = frozenset(('"PK"', "1f 8b", '"BZh"', '"7zXZ"', "28 b5 2f fd", '"7z"'))  # a file with files in it
_WRITE = (
    "what can be read, and how: edlz data --help; how to write RecordIO: python -m pydoc edlz.api.recordio"
)
_SAY = 'say what it is: --data_reader_params="reader_type={}"; see edlz data --help'
_SAMPLE_BYTES = 512
_SHOWN_BYTES = 12


def describe_start(source: ByteSource) -> str:
    """Say what a file begins with, and what that makes it if it is known.

    Parameters
    ----------
    source : bytes, mmap or Ranges
        The whole file.

    Returns
    -------
    str
        E.g. `starts with "PK": a zip file`.
    """
    head = bytes(source[:_SAMPLE_BYTES])
    for signature, shown, name in _SIGNATURES:
        if head.startswith(signature):
            return f"starts with {shown}: {name}"
    if _is_tfrecord(source):
        return f"starts with {_hex(head)}: a TFRecord file"
    text = _as_text(head)
    if text is not None:
        line = text.splitlines()[0] if text.strip() else ""
        return f'starts with "{line[:_SHOWN_BYTES]}": a text file'
    return f"starts with {_hex(head)}: an unknown format"


def is_no_text(source: ByteSource) -> bool:
    """Whether a file is none of lines, but begins as one of the formats here does."""
    head = bytes(source[:_SAMPLE_BYTES])
    if _as_text(head) is not None:
        return False
    return any(head.startswith(signature) for signature, _, _ in _SIGNATURES) or _is_tfrecord(source)


def advice_for(source: ByteSource) -> str:
    """Say what to do with such a file."""
    head = bytes(source[:_SAMPLE_BYTES])
    shown = next((shown for signature, shown, _ in _SIGNATURES if head.startswith(signature)), "")
    if shown in _PACKED:
        return "unpack it; of packed files *.csv.gz, *.tsv.gz, *.txt.gz, *.jsonl.gz and *.tfrecord.gz are read as they are"
    if shown == '"PAR1"':
        return _SAY.format("Parquet")
    if shown == "04 03 02 01":
        return _SAY.format("RecordIO")
    if not shown and _is_tfrecord(source):
        return _SAY.format("TFRecord")
    text = "" if shown else _as_text(head) or ""
    return _SAY.format("CSV" if "," in text.partition("\n")[0] else "Text") if text.strip() else _WRITE


def _is_tfrecord(source: ByteSource) -> bool:
    """Follow the records' lengths: uint64, its CRC (4 bytes), the data, the data's CRC (4 bytes)."""
    offset = 0
    for _ in range(4):
        if len(source) - offset < 16:
            return False
        (length,) = struct.unpack("<Q", source[offset : offset + 8])
        if not 0 < length <= len(source) - offset - 16:
            return False
        offset += 16 + length
        if offset == len(source):
            break
    return True


def _as_text(head: bytes) -> str | None:
    try:
        # Not final: the sample may end inside of a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < _SAMPLE_BYTES)
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\t\r\n\f\ufeff" for c in text) else None


def _hex(head: bytes) -> str:
    return head[:_SHOWN_BYTES].hex(" ")

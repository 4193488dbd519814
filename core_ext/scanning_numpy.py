"""What the kernels of `scanning` do, in plain Python: the specification that tests hold them to.

Rows are what stands between newlines.  A newline within quotes ends nothing; `quote` is a byte, or -1 for none.  A line that is
empty, or holds a carriage return alone, is a row unless `skip_empty`.  Data begins where a row or a record begins.

A TFRecord is the length of its data (uint64, little-endian), a checksum of these 8 bytes, the data, and a checksum of it:
CRC-32C, rotated and shifted as TensorFlow does.
"""

import itertools
import mmap
import struct

import numpy as np
import numpy.typing as npt

__all__ = [
    "BAD_DATA",
    "BAD_LENGTH",
    "CUT_OFF",
    "WHOLE",
    "Data",
    "Places",
    "count_rows",
    "crc32c",
    "hop_records",
    "record_bounds",
    "row_bounds",
    "slices",
    "texts",
]

Data = bytes | bytearray | memoryview | mmap.mmap
Places = npt.NDArray[np.int64]

WHOLE, CUT_OFF, BAD_LENGTH, BAD_DATA = range(4)
"""How a walk over TFRecords ends: at its end; at a record that is cut off; at a checksum that does not fit."""

_HEAD, _FOOT = 12, 4


def count_rows(data: Data, quote: int, skip_empty: bool) -> tuple[int, int, bool]:
    """Return how many rows end in the data, what is behind the last line's end, and whether quotes are open at the end."""
    lines, is_open = _lines(bytes(data), quote)
    rows = [line for line in lines if not (skip_empty and _is_empty(bytes(data), line))]
    return len(rows), lines[-1][1] + 1 if lines else 0, is_open


def row_bounds(
    data: Data, quote: int, skip_empty: bool, first: int, count: int
) -> tuple[Places, Places, bool]:
    """Return starts and ends of rows from number `first` on, without their line ends, and whether quotes are left open.

    There are fewer than `count` if the data ends before.  The last row needs no newline; one without its closing quote is
    no row.
    """
    text = bytes(data)
    lines, is_open = _lines(text, quote)
    rest = lines[-1][1] + 1 if lines else 0
    if rest < len(text) and not is_open:
        lines.append((rest, len(text)))
    rows = [line for line in lines if not (skip_empty and _is_empty(text, line))][first : first + count]
    starts = np.array([start for start, _ in rows], np.int64)
    ends = np.array([end - (text[start:end].endswith(b"\r")) for start, end in rows], np.int64)
    return starts, ends, is_open and len(rows) < count


def crc32c(data: Data) -> int:
    """Return the CRC-32C (Castagnoli) of the data.

    References
    ----------
    RFC 3720, appendix B.4.
    """
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def hop_records(data: Data, begin: int, limit: int) -> tuple[int, int, int, int]:
    """Walk over TFRecords from `begin` until `limit` bytes are passed; their data is not looked at.

    Returns
    -------
    records, end : int
        How many whole ones there are, and what is behind them.
    checksum : int
        CRC-32C of all their lengths and their data's checksums.
    error : int
        WHOLE, or why the walk ended before.
    """
    text, at, records, passed, error = bytes(data), begin, 0, b"", WHOLE
    while at < len(text) and at - begin < limit:
        length, error = _length(text, at)
        if error:
            break
        end = at + _HEAD + length + _FOOT
        passed += text[at : at + 8] + text[end - _FOOT : end]
        at, records = end, records + 1
    return records, at, crc32c(passed), error


def record_bounds(data: Data, first: int, count: int) -> tuple[Places, Places, int, int]:
    """Return starts and ends of the data of TFRecords from number `first` on, what is behind them, and an error or WHOLE.

    The checksums of their data are looked at, those of the records before them are not.
    """
    text, at, number, error = bytes(data), 0, 0, WHOLE
    starts: list[int] = []
    ends: list[int] = []
    while at < len(text) and len(starts) < count:
        length, error = _length(text, at)
        if error:
            break
        start, end = at + _HEAD, at + _HEAD + length
        if number >= first:
            if text[end : end + _FOOT] != _masked(text[start:end]):
                error = BAD_DATA
                break
            starts.append(start)
            ends.append(end)
        at, number = end + _FOOT, number + 1
    return np.array(starts, np.int64), np.array(ends, np.int64), at, error


def texts(data: Data, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """Return the bytes between places that follow one another; equal ones may be one object.

    Raises
    ------
    IndexError
        If the places are not in ascending order within the data.
    """
    text = bytes(data)
    if not len(ends) or ends[0] < 0:
        raise IndexError("there are no places, or they begin before the data")
    for start, end in itertools.pairwise(ends):
        if end < start or end > len(text):
            raise IndexError(f"bytes {start} to {end} are not within the {len(text)}")
    found = np.empty(len(ends) - 1, object)
    found[:] = [text[start:end] for start, end in itertools.pairwise(ends)]
    return found


def slices(data: Data, starts: Places, ends: Places) -> list[bytes]:
    """Return the bytes between each start and end.

    Raises
    ------
    IndexError
        If they are not within the data.
    """
    text = bytes(data)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if not 0 <= start <= end <= len(text):
            raise IndexError(f"bytes {start} to {end} are not within the {len(text)}")
    return [text[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def _lines(text: bytes, quote: int) -> tuple[list[tuple[int, int]], bool]:
    """Start and newline of each line that has ended, and whether quotes are open at the end."""
    lines, start, is_open = [], 0, False
    for place, byte in enumerate(text):
        if byte == quote:
            is_open = not is_open
        elif byte == 0x0A and not is_open:
            lines.append((start, place))
            start = place + 1
    return lines, is_open


def _is_empty(text: bytes, line: tuple[int, int]) -> bool:
    return text[line[0] : line[1]] in (b"", b"\r")


def _length(text: bytes, at: int) -> tuple[int, int]:
    """The length of the record at a place, and an error or WHOLE."""
    if len(text) - at < _HEAD:
        return 0, CUT_OFF
    if text[at + 8 : at + _HEAD] != _masked(text[at : at + 8]):
        return 0, BAD_LENGTH
    (length,) = struct.unpack_from("<Q", text, at)
    return (length, WHOLE) if length <= len(text) - at - _HEAD - _FOOT else (0, CUT_OFF)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

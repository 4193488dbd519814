"""The file of one task: what is known of each column of its records.  Columns are read one at a time: all of them, of all
tasks, may be more than memory holds.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from edlz.core_ext.scanning import crc32c
from edlz.services.errors import DataError
from edlz.services.statistics.columns import ColumnPart, ColumnState

__all__ = ["EXTENSION", "PartReader", "TaskStatistics", "opened_part", "write_statistics"]

EXTENSION = "statistics"
_MAGIC = b"edlzst1\n"
_START = struct.Struct("<QI")  # bytes of the head, and their checksum


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """What a task gives."""

    records: int
    columns: Mapping[str, ColumnState]


class _Place(msgspec.Struct, frozen=True, array_like=True):
    name: str
    bytes: int
    checksum: int


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    records: int
    places: tuple[_Place, ...]


def write_statistics(path: Path, statistics: TaskStatistics) -> None:
    """Write a task's file, not durably.

    Raises
    ------
    OSError
        If the disk is full or fails.
    """
    encode = msgspec.msgpack.encode
    blobs = {name: encode(state.part()) for name, state in sorted(statistics.columns.items())}
    places = tuple(_Place(name, len(blob), crc32c(blob)) for name, blob in blobs.items())
    head = encode(_Head(records=statistics.records, places=places))
    path.write_bytes(b"".join((_MAGIC, _START.pack(len(head), crc32c(head)), head, *blobs.values())))


class PartReader:
    """An open file of a task.

    Attributes
    ----------
    records : int
    names : tuple of str
        Of its columns.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file
        start = file.read(len(_MAGIC) + _START.size)
        if len(start) < len(_MAGIC) + _START.size or not start.startswith(_MAGIC):
            raise self._damaged()
        size, checksum = _START.unpack_from(start, len(_MAGIC))
        packed = file.read(min(size, os.fstat(file.fileno()).st_size))
        if crc32c(packed) != checksum:
            raise self._damaged()
        try:
            head = msgspec.msgpack.decode(packed, type=_Head)
        except msgspec.DecodeError as error:
            raise self._damaged() from error
        self.records, self._places = head.records, dict[str, tuple[int, _Place]]()
        offset = len(start) + size
        for place in head.places:
            self._places[place.name] = (offset, place)
            offset += place.bytes
        self.names = tuple(self._places)

    def column(self, name: str) -> ColumnPart | None:
        """Return what is known of a column; None if no record of the task has it.

        Raises
        ------
        DataError
            If the file is damaged.
        """
        if name not in self._places:
            return None
        offset, place = self._places[name]
        self._file.seek(offset)
        packed = self._file.read(place.bytes)
        if crc32c(packed) != place.checksum:
            raise self._damaged()
        try:
            return msgspec.msgpack.decode(packed, type=ColumnPart)
        except msgspec.DecodeError as error:
            raise self._damaged() from error

    def _damaged(self) -> DataError:
        return DataError(
            f"{self._path} is damaged: it is no file of a task's statistics", "remove it, then: edlz resume"
        )


@contextmanager
def opened_part(path: Path) -> Iterator[PartReader]:
    """Open a task's file.

    Raises
    ------
    DataError
        If it is damaged.
    OSError
        If it cannot be read.
    """
    with path.open("rb") as file:
        yield PartReader(path, file)

"""Shards of CSV with a header: as the readers of RecordIO and its writer, but for lines."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["CSVReader", "CSVWriter", "encode_row"]


def encode_row(values: Sequence[object]) -> bytes:
    """Return a line with these values, quoted where they must be."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue().encode()


class CSVWriter:
    """Writes lines; the file has its name when it is whole."""

    def __init__(self, path: Path, header: bytes) -> None:
        self._path, self._unfinished = path, path.with_name(f".{path.name}")
        self._file = self._unfinished.open("wb")
        self._file.write(header)

    def write(self, line: bytes) -> None:
        """Add a line, which has its end."""
        self._file.write(line)

    def close(self) -> None:
        """End the file, durably."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._unfinished, self._path)

    def abort(self) -> None:
        """Give up the file."""
        self._file.close()
        self._unfinished.unlink(missing_ok=True)


class CSVReader:
    """Reads lines by their numbers; none of the values has a line end in it.

    Raises
    ------
    ValueError
        If the file has another header.
    """

    def __init__(self, path: Path, header: bytes) -> None:
        first, *self._lines = path.read_bytes().splitlines(keepends=True) or [b""]
        if first != header:
            raise ValueError(f"{path} has another header")

    def __len__(self) -> int:
        return len(self._lines)

    def read(self, first: int, count: int) -> list[bytes]:
        return self._lines[first : first + count]

    def close(self) -> None:
        """Let go of the lines."""
        self._lines = []

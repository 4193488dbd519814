"""A log file that begins anew when it is full, with the older ones kept beside it."""

from pathlib import Path
from typing import BinaryIO

__all__ = ["LogFile"]

_MOST_BYTES = 50_000_000
_KEPT = 3


class LogFile:
    """Appends bytes to `worker-0.log`; a full one becomes `worker-0.log.1`, and so on up to `.3`.

    Parameters
    ----------
    path : the file
    most_bytes : after so many the next whole line begins a new file
    kept : how many older files stay
    """

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES, kept: int = _KEPT) -> None:
        self.path = path
        self._most_bytes, self._kept = most_bytes, kept
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def write(self, data: bytes) -> None:
        """Append data: whole lines, unless a line is very long."""
        if self._size and self._size + len(data) > self._most_bytes:
            self._turn_over()
        self._file.write(data)
        self._size += len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _turn_over(self) -> None:
        self._file.close()
        for number in range(self._kept, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._file = self.path.open("wb", buffering=0)
        self._size = 0

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

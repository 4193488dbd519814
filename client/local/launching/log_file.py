"""A log file that begins anew when it is full, with the older ones kept beside it.

A disk that is full, or takes nothing for another reason, costs lines and nothing else: they are dropped and
counted, and when it takes some again the file says how many are missing.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from edlz.client.screen.wording import count_of

__all__ = ["LogFile", "LogTrouble"]

_MOST_BYTES = 50_000_000
_KEPT = 3


class LogTrouble:
    """What the log files of one job have lost: told once when it begins, and once when it is over.

    Parameters
    ----------
    say : callable
        Called with the text.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._failing: set[Path] = set()  # files that do not take anything now
        self._is_told = False
        self._lines = 0  # dropped since it was told

    def lost(self, path: Path, lines: int, error: OSError) -> None:
        """A file has not taken so many lines."""
        self._failing.add(path)
        self._lines += lines
        if not self._is_told:
            self._is_told = True
            reason = error.strerror or str(error)
            self._say(f"{path} cannot be written: {reason}; log lines are dropped until that is over.")

    def wrote(self, path: Path) -> None:
        """A file has taken all of its lines."""
        if self._is_told:
            self._failing.discard(path)
            if not self._failing:
                self._say(f"log files are written again; {count_of(self._lines, 'line')} could not be kept.")
                self._is_told, self._lines = False, 0

    def closed(self, path: Path) -> None:
        """A file is not written to any more."""
        self._failing.discard(path)


class LogFile:
    """Appends bytes to `worker-0.log`; a full one becomes `worker-0.log.1`, and so on up to `.3`.

    Parameters
    ----------
    path : Path
        The file.
    trouble : LogTrouble
        Is told what could not be written.
    most_bytes : int
        After so many the next whole line begins a new file.
    kept : int
        How many older files stay.
    """

    def __init__(
        self, path: Path, trouble: LogTrouble, most_bytes: int = _MOST_BYTES, kept: int = _KEPT
    ) -> None:
        self.path = path
        self._trouble, self._most_bytes, self._kept = trouble, most_bytes, kept
        self._file: BinaryIO | None = None
        self._size = 0
        self._dropped = 0  # lines since the last one that was written
        self._is_torn = False  # the file ends within a line
        with suppress(OSError):  # told if something is to be written
            self._open(0)

    def write(self, data: bytes) -> None:
        """Append data: whole lines, unless a line is very long."""
        try:
            file = self._open(len(data))
            if self._dropped:
                end = "\n" if self._is_torn else ""
                missing = f"{end}--- {count_of(self._dropped, 'line')} could not be written here\n"
                self._append(file, missing.encode())
                self._dropped = 0
            self._append(file, data)
        except OSError as error:
            lines = max(1, data.count(b"\n"))
            self._dropped += lines
            self._trouble.lost(self.path, lines, error)
        else:
            self._trouble.wrote(self.path)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._trouble.closed(self.path)

    def _append(self, file: BinaryIO, data: bytes) -> None:
        view = memoryview(data)
        while view:
            count = file.write(view)
            self._size += count
            self._is_torn = view[count - 1] != ord("\n")
            view = view[count:]

    def _open(self, more_bytes: int) -> BinaryIO:
        """Return the file to write to: opened now if it could not be before, a new one if it is full."""
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
            self._size = self._file.tell()
        if self._size and self._size + more_bytes > self._most_bytes:
            self._turn_over()
        assert self._file is not None
        return self._file

    def _turn_over(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        for number in range(self._kept, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._file = self.path.open("wb", buffering=0)
        self._size, self._is_torn = 0, False

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

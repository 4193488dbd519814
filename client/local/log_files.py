"""The log files of a job as they grow: across turnovers, and with files that appear later."""

import heapq
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from edlz.client.screen.log_lines import LogLine, Selection, stamped
from edlz.services.configuration.problems import Problem, print_problems

__all__ = ["LogFiles"]

_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20  # bytes; a longer one is passed on in pieces
_KEPT = 3  # older files beside each, as `LogFile` keeps them


class LogFiles:
    """What the services of a job have written, and what they go on to write.

    Parameters
    ----------
    folder : Path
        Of the log files.
    is_wanted : callable
        Whether a service is.
    selection : Selection
        Which of its lines are.
    """

    def __init__(self, folder: Path, is_wanted: Callable[[str], bool], selection: Selection) -> None:
        self._folder, self._is_wanted, self._selection = folder, is_wanted, selection
        self._tails: dict[str, _Tail] = {}
        self._unreadable: set[Path] = set()

    def names(self) -> list[str]:
        """Return the services that have a log file, wanted or not."""
        names = [path.stem for path in self._folder.glob("*.log")]
        return sorted(
            names, key=lambda name: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)]
        )

    def history(self, *, is_last: bool = False) -> Iterator[LogLine]:
        """Yield the wanted lines that stand there now, in the order of their times; `is_last` as in `news`."""
        fresh = self._appeared()
        return heapq.merge(*(tail.lines(with_older=True, is_last=is_last) for tail in fresh), key=_time)

    def news(self, *, is_last: bool = False) -> list[LogLine]:
        """Return the wanted lines that were written since; `is_last`: also one that has no end yet."""
        self._appeared()
        lines = [line for tail in self._tails.values() for line in tail.lines(is_last=is_last)]
        return sorted(lines, key=_time)

    def close(self) -> None:
        """Close the files."""
        for tail in self._tails.values():
            tail.close()

    def _appeared(self) -> list["_Tail"]:
        """Return files that were not there before."""
        fresh = []
        for name in self.names():
            if name not in self._tails and self._is_wanted(name):
                path = self._folder / f"{name}.log"
                try:
                    self._tails[name] = _Tail(name, path, self._selection)
                    fresh.append(self._tails[name])
                except FileNotFoundError:
                    pass  # it turns over just now: the next look sees it
                except OSError as e:
                    self._tell_unreadable(path, e)
        return fresh

    def _tell_unreadable(self, path: Path, error: OSError) -> None:
        if path not in self._unreadable:
            self._unreadable.add(path)
            print_problems([Problem(f"{path} cannot be read: {error.strerror}")], "warning")


class _Tail:
    """One service's log.

    Attributes
    ----------
    at : float
        Time of the last line that was read.
    """

    def __init__(self, name: str, path: Path, selection: Selection) -> None:
        self.name, self.at = name, 0.0
        self._path, self._selection = path, selection
        self._file: BinaryIO = path.open("rb")
        self._rest = b""

    def lines(self, *, with_older: bool = False, is_last: bool = False) -> Iterator[LogLine]:
        """Yield the wanted lines up to the present end."""
        return self._selection.take(self._stamped(with_older=with_older, is_last=is_last))

    def close(self) -> None:
        self._file.close()

    def _stamped(self, *, with_older: bool, is_last: bool) -> Iterator[LogLine]:
        for line in stamped(self.name, self._texts(with_older=with_older, is_last=is_last), self.at):
            self.at = line.at
            yield line

    def _texts(self, *, with_older: bool, is_last: bool) -> Iterator[str]:
        if with_older:
            yield from self._older()
        yield from self._read(self._file)
        while self._has_turned_over():
            newer = self._path.open("rb")
            yield from self._read(self._file)  # what was written before the turn
            self._file.close()
            self._file = newer
            yield from self._read(self._file)
        if is_last and self._rest:
            yield self._rest.decode(errors="replace")
            self._rest = b""

    def _older(self) -> Iterator[str]:
        own = os.fstat(self._file.fileno())
        for number in range(_KEPT, 0, -1):
            path = self._path.with_name(f"{self._path.name}.{number}")
            with suppress(FileNotFoundError), path.open("rb") as older:
                if not os.path.samestat(os.fstat(older.fileno()), own):
                    yield from self._read(older)

    def _read(self, file: BinaryIO) -> Iterator[str]:
        while chunk := file.read(_CHUNK_BYTES):
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            if len(self._rest) > _LONGEST_LINE:
                whole, self._rest = [*whole, self._rest], b""
            for text in whole:
                yield text.decode(errors="replace").rstrip("\r")

    def _has_turned_over(self) -> bool:
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False


def _time(line: LogLine) -> float:
    return line.at

"""Data that grows: what has come since the job began, and is whole.

A file is taken once, and then stays as it is: its name is remembered, not its content.  A program that writes into the
place itself should write elsewhere, or under a name that is left out (`.x`, `_x`, `x.tmp`, `x.part`, `x.partial`), and rename the file
when it is whole.  Of one that does not, a file is taken when it has not changed for a while; that is a guess, and a file
that goes on growing after it is found by whoever reads it, by name, as any file that has changed.

Shards of a reader of the model's own may grow, too: what is new of one is what lies behind the last record that was planned.
"""

import glob
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, DataError, EdlzError
from edlz.services.inputs.custom_listing import CUSTOM, ShardLister
from edlz.services.inputs.known_formats import format_named
from edlz.services.inputs.paths import check_name, is_left_out, nearest_path
from edlz.services.inputs.reading.format import Request
from edlz.services.inputs.reading.params import parse_params
from edlz.services.protocol.growing_plan import Piece
from edlz.services.protocol.plan import DataSource, FileFacts, Shard
from edlz.services.valid_text import valid_text

__all__ = ["SETTLED_S", "Watch", "settled_files", "watch_of"]

SETTLED_S = 5.0  # a file that has not changed for so long is whole
_MOST_FILES = 1000  # in one piece

_Stamp = tuple[int, int, int]  # of a file: size, time of its last change, which one it is


class Watch(Protocol):
    """Looks for new data; one thread at a time."""

    def look(self) -> Piece:
        """Return what has come and was not returned before; without shards, if nothing has.

        Raises
        ------
        EdlzError
            If it cannot be looked at now.
        """

    def take_refused(self) -> list[str]:
        """Return what could not be taken, and why, since the last time."""

    def close(self) -> None:
        """Let go of what it holds."""


def watch_of(config: JobConfig, source: DataSource, planned: Iterable[Shard]) -> Watch:
    """Return the watch over a job's training data.

    Parameters
    ----------
    planned : iterable of Shard
        What the plan and its pieces have.
    """
    if source.format == CUSTOM:
        return _ShardWatch(ShardLister(config, source.origin), planned)
    return FileWatch(source, (shard.name for shard in planned))


def settled_files(given: str, wait: Callable[[float], None] = time.sleep) -> list[str]:
    """Return the files that a job whose data grows begins with: those that are whole, and some at least.

    Raises
    ------
    ConfigError
        If there is none, nor one that will soon be whole.
    DataError
        If one has a name that is not UTF-8.
    """
    settling = _Settling()
    while True:
        names = list(_files_by_now(given))
        whole = [name for name in names if settling.is_whole(name)]
        if whole:
            for name in whole:
                check_name(name)
            return whole
        if not any(map(os.path.exists, names)):
            for place in filter(_is_missing, _places(given)):
                raise ConfigError(f'training_data "{place}" does not exist', nearest_path(Path(place)))
            raise ConfigError(
                f'training_data "{given}" has no files in it yet: what records are is learnt from the first ones',
                "put one there, then start the job; it takes what comes later",
            )
        wait(SETTLED_S / 10)


class _Settling:
    """Which files have not changed for a while, as far as their times say, or as has been seen."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[_Stamp, float]] = {}

    def is_whole(self, name: str) -> bool:
        stamp = _stamp_of(name)
        if stamp is None:
            self._since.pop(name, None)
            return False
        now = time.monotonic()
        seen, since_s = self._since.get(name, (None, now))
        if seen != stamp:
            since_s = now
        self._since[name] = (stamp, since_s)
        return now - since_s >= SETTLED_S or time.time() - stamp[1] / 1e9 >= SETTLED_S

    def forget(self, name: str) -> None:
        self._since.pop(name, None)


class FileWatch:
    """Looks for files.

    Parameters
    ----------
    source : DataSource
        How they are read; `origin` says where they come.
    taken : iterable of str
        The names of those that are planned.
    """

    def __init__(self, source: DataSource, taken: Iterable[str]) -> None:
        self._source, self._taken = source, set(taken)
        self._format, self._params = format_named(source.format), parse_params(source.params)
        self._settling = _Settling()
        self._refused: dict[str, _Stamp] = {}  # empty ones, and those that cannot be read, as they were then
        self._reasons: list[str] = []
        self._gone: set[str] = set()  # places that were told to be gone

    def look(self) -> Piece:
        self._tell_gone()
        shards, files = [], []
        for name in _files_by_now(self._source.origin):
            if name in self._taken or not self._settling.is_whole(name):
                continue
            stamp = _stamp_of(name)
            if stamp is None or self._refused.get(name) == stamp:
                continue
            if not stamp[0]:  # nobody has written into it yet
                continue
            facts, count = self._counted(name)
            if not count or facts is None or _stamp_of(name) != stamp:
                self._refused[name] = stamp
                continue
            self._refused.pop(name, None)
            self._settling.forget(name)
            shards.append(Shard(name=name, first=0, count=count))
            files.append(facts)
            if len(shards) == _MOST_FILES:
                break
        self._taken.update(shard.name for shard in shards)
        return Piece(shards=tuple(shards), files=tuple(files))

    def take_refused(self) -> list[str]:
        reasons, self._reasons = self._reasons, []
        return reasons

    def close(self) -> None:
        """There is nothing to let go of."""

    def _tell_gone(self) -> None:
        """Say of each place that it is gone, once until it is back: a file that was taken may go."""
        places = _places(self._source.origin)
        gone = {place for place in places if _is_missing(place) and place not in self._taken}
        self._reasons += [
            f"{place} is gone: nothing comes from it until it is back" for place in sorted(gone - self._gone)
        ]
        self._gone = gone

    def _counted(self, name: str) -> tuple[FileFacts | None, int]:
        """Return how many records a file has; none, if it cannot be taken: it may be put right."""
        try:
            check_name(name)
            found = self._format.find(
                Request(files=[name], params=self._params, columns=self._source.columns)
            )
            if found.counts[0] and not set(self._source.columns) <= set(found.columns):
                raise DataError(
                    f"{name} has the columns {_shown(found.columns)}, the job's data {_shown(self._source.columns)}"
                )
        except (EdlzError, OSError) as error:
            reason = getattr(error, "message", None) or str(error)
            named = reason if valid_text(name) in reason else f"{valid_text(name)}: {reason}"
            self._reasons.append(f"{named}; it is left out until it changes")
            return None, 0
        return found.facts[0], found.counts[0]


class _ShardWatch:
    """Asks a reader of the model's own."""

    def __init__(self, lister: ShardLister, planned: Iterable[Shard]) -> None:
        self._lister = lister
        self._ends: dict[str, int] = {}  # behind the last planned record of each shard
        for shard in planned:
            self._note(shard.name, shard.first + shard.count)

    def look(self) -> Piece:
        shards = []
        for name, first, count in self._lister.shards():
            begin, end = max(first, self._ends.get(name, first)), first + count
            if end > begin:
                shards.append(Shard(name=name, first=begin, count=end - begin))
                self._note(name, end)
        return Piece(shards=tuple(shards))

    def take_refused(self) -> list[str]:
        return []

    def close(self) -> None:
        self._lister.close()

    def _note(self, name: str, end: int) -> None:
        self._ends[name] = max(end, self._ends.get(name, 0))


def _files_by_now(given: str) -> Iterator[str]:
    """Yield what files there are, in the order of the places that are given, and there by their names."""
    for path in _places(given):
        if glob.has_magic(path) and not os.path.lexists(path):
            names = sorted(glob.glob(path, recursive=True))
        elif Path(path).is_dir():
            names = [os.path.join(path, name) for name in sorted(os.listdir(path))]
        else:
            names = [path]
        yield from (name for name in names if not is_left_out(os.path.basename(name)))


def _places(given: str) -> list[str]:
    """Return the files, folders and patterns that are given."""
    paths = [given] if os.path.lexists(given) or "," not in given else given.split(",")
    return [path for path in map(str.strip, paths) if path]


def _is_missing(place: str) -> bool:
    """Whether something is not there that is no pattern."""
    return not glob.has_magic(place) and not os.path.lexists(place)


def _stamp_of(name: str) -> _Stamp | None:
    """Return what changes with a file; None, if it is none, or is gone."""
    try:
        about = os.stat(name)
    except OSError:
        return None
    return (about.st_size, about.st_mtime_ns, about.st_ino) if Path(name).is_file() else None


def _shown(columns: Iterable[object]) -> str:
    return ", ".join(f"{getattr(c, 'name', c)} ({getattr(c, 'kind', '')})" for c in columns) or "(none)"

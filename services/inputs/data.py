"""The records of a job: which files hold them, and reading those of one task.

Owns the listing of shards and the open readers.  What is in a file is `api.recordio`'s affair, what a
record means the model's.
"""

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edlz.api.recordio import Reader, RecordIOError, count_records
from edlz.services.configuration.nearest import nearest
from edlz.services.errors import ConfigError, DataError
from edlz.services.protocol.plan import Shard, TaskRange
from edlz.services.valid_text import is_valid_text, valid_text

__all__ = ["RecordSource", "list_shards", "nearest_path"]

MAX_OPEN_FILES = 16
CACHE_BYTES = 256 << 20  # decompressed chunks, over all open files
_COPIES = ("~", ".bak", ".orig")  # how the names of files end that editors keep beside those that they write
_MOST_NAMED = 3
_WRITE = "write RecordIO files there; how: python -m pydoc edlz.api.recordio"

logger = logging.getLogger(__name__)


def list_shards(
    path: str, flag: str = "training_data", tell: Callable[[str], None] = logger.info
) -> tuple[Shard, ...]:
    """Return the shards of a RecordIO file, or of all files in a directory, in the order of their names.

    Files without records are left out, and those whose name begins with a dot or an underscore, as it is the custom
    for what is no data.  So are folders, and the copies that editors keep, but that is told: somebody may miss them.
    Counts come from the chunks' headers; no record is read.

    Parameters
    ----------
    path : str
        As the user gave it; the shards' names begin with it.
    flag : str
        The flag that it came from, for the message.
    tell : callable
        Called with a sentence that says what is left out.

    Raises
    ------
    ConfigError
        If there is no such path, no file in the directory, or no record in any of the files.
    DataError
        If a file cannot be read or is not RecordIO, or something in the directory is no file at all.
    """
    names = _file_names(path, flag, tell)
    shards = [Shard(name=name, first=0, count=_count(name)) for name in names]
    filled = tuple(shard for shard in shards if shard.count)
    if not filled:
        raise ConfigError(
            f'{flag} "{path}" has no records: {len(names)} empty file{"" if len(names) == 1 else "s"}',
            _WRITE,
        )
    return filled


class RecordSource:
    """Reads the records of tasks; any thread may call it.

    Files stay open from task to task, `max_open_files` of them at most.
    """

    def __init__(self, max_open_files: int = MAX_OPEN_FILES) -> None:
        self._max_open_files = max_open_files
        self._readers: OrderedDict[str, Reader] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()  # guards the readers' table, not the reading
        self._is_closed = False

    def read(self, task_range: TaskRange, order: npt.NDArray[np.int64] | None = None) -> list[bytes]:
        """Return the records of a range.

        Parameters
        ----------
        order : ndarray, shape (task_range.count,), int64
            The order in which to return them, as places in the range; None for that of the file.

        Raises
        ------
        DataError
            If the file cannot be read, is damaged, or does not have these records.
        """
        name, first, count = task_range.name, task_range.first, task_range.count
        try:
            reader = self._reader(name)
        except RecordIOError as e:
            raise DataError(f"{e.message} ({_span(task_range)})", e.help) from e
        except OSError as e:
            raise DataError(f"{name} cannot be read: {e.strerror or e} ({_span(task_range)})") from e
        try:
            if order is None:
                return reader.read(first, count)
            return reader.take(order + first)
        except RecordIOError as e:
            raise DataError(f"{e.message} ({_span(task_range)})", e.help) from e
        except IndexError as e:
            raise DataError(
                f"{_span(task_range)} of {name} are not there: it has {len(reader)}",
                "the file has changed since the job began: put it back, or start a new job",
            ) from e

    def close(self) -> None:
        """Close all files; reading afterwards raises ValueError."""
        with self._lock:
            self._is_closed = True
            readers, self._readers = self._readers, OrderedDict()
        for reader in readers.values():
            reader.close()

    def _reader(self, name: str) -> Reader:
        with self._lock:
            reader = self._readers.get(name)
            if reader is not None:
                self._readers.move_to_end(name)
                return reader
        opened = Reader(name, cache_bytes=CACHE_BYTES // self._max_open_files)
        with self._lock:
            if self._is_closed:
                raise ValueError("the record source is closed; make a new one")
            # Two threads may have opened the same file: the first one's reader stays.
            reader = self._readers.setdefault(name, opened)
            # A reader that falls out is not closed here: another thread may be about to use it.  Its
            # mapping goes with the last reference.
            while len(self._readers) > self._max_open_files:
                self._readers.popitem(last=False)
        return reader


def _file_names(path: str, flag: str, tell: Callable[[str], None]) -> list[str]:
    place = Path(path)
    if place.is_file():
        return [path]
    if not place.is_dir():
        raise ConfigError(f'{flag} "{path}" does not exist', nearest_path(place))
    entries = sorted(entry.name for entry in place.iterdir() if entry.name[0] not in "._")
    folders = [name for name in entries if (place / name).is_dir()]
    copies = [name for name in entries if name.endswith(_COPIES) and name not in folders]
    names = [name for name in entries if name not in folders and name not in copies]
    if not names:
        inside = [os.path.join(path, name) for name in folders]
        raise ConfigError(
            f'{flag} "{path}" has no files in it',
            f"it has folders: {', '.join(inside[:_MOST_NAMED])}" if inside else _WRITE,
        )
    for name in names:
        _check_file(place / name, flag)
    for what, left_out in (("folder", folders), ("copy", copies)):
        if left_out:
            tell(f'{flag} "{path}": {_named(left_out, what)} in it {_is(left_out)} left out')
    return [os.path.join(path, name) for name in names]


def _check_file(path: Path, flag: str) -> None:
    """Refuse what is no file, or cannot be named: leaving it out would be training on other data."""
    shown = valid_text(str(path))
    if not is_valid_text(str(path)):
        message = f"{shown} has a name that is not UTF-8, and cannot be told to other processes"
        raise DataError(message, f"rename it: mv $'{shown}' …")
    if path.is_file():
        return
    if path.is_symlink() and not path.exists():
        message = f"{shown} is a link to {valid_text(os.readlink(path))}, which does not exist"
        raise DataError(message, f"remove the link, or put the file back: all of {flag} is read")
    raise DataError(f"{shown} is no regular file", f"remove it: all of {flag} is read")


def _named(names: list[str], what: str) -> str:
    """Return `the folder a`, or `5 folders (a, b, c, …)`."""
    if len(names) == 1:
        return f"the {what} {valid_text(names[0])}"
    plural = "copies" if what == "copy" else f"{what}s"
    more = ", …" if len(names) > _MOST_NAMED else ""
    return f"{len(names)} {plural} ({', '.join(map(valid_text, names[:_MOST_NAMED]))}{more})"


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _count(name: str) -> int:
    try:
        return count_records(name)
    except RecordIOError as e:
        raise DataError(e.message, e.help) from e
    except OSError as e:
        raise DataError(f"{name} cannot be read: {e.strerror or e}") from e


def nearest_path(place: Path) -> str:
    """Return `nearest: …` with a path that exists: the first part that is missing is looked up among its neighbours."""
    for parent in place.parents:
        if parent.is_dir():
            missing, *rest = place.relative_to(parent).parts
            for name in nearest(missing, (entry.name for entry in parent.iterdir())):
                if parent.joinpath(name, *rest).exists():
                    return f"nearest: {parent.joinpath(name, *rest)}"
            return ""
    return ""


def _span(task_range: TaskRange) -> str:
    return f"records {task_range.first} to {task_range.first + task_range.count - 1}"

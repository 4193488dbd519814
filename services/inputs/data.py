"""Reading the records of tasks: which files are open, and what is read from them.

What is in a file is its format's affair, what a record means the model's.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

from edlz.services.configuration.data_addresses import is_address
from edlz.services.errors import DataError
from edlz.services.inputs.known_formats import DEFAULT, format_named
from edlz.services.inputs.reading.content import as_planned
from edlz.services.inputs.reading.format import CHANGED_HELP, Reader, unreadable
from edlz.services.inputs.reading.records import Order, Records
from edlz.services.protocol.plan import DataSource, FileFacts, TaskRange

__all__ = ["Opener", "RecordSource"]

Opener = Callable[[str], Reader]

MAX_OPEN_FILES = 16


class RecordSource:
    """Reads the records of tasks; any thread may call it.

    Files stay open from task to task, `max_open_files` of them at most.

    Parameters
    ----------
    sources : DataSource
        How files are read; those that none of them names, as those of the first, or they are RecordIO.
    """

    def __init__(self, *sources: DataSource | None, max_open_files: int = MAX_OPEN_FILES) -> None:
        self._files: dict[str, tuple[DataSource, FileFacts | None]] = {
            facts.name: (source, facts) for source in sources if source for facts in source.files
        }
        self._source_of_others = next((source for source in sources if source), DataSource(format=DEFAULT))
        self._openers: dict[str, Opener] = {}
        self._opener_of_others: Opener | None = None
        self._max_open_files = max_open_files
        self._readers: OrderedDict[str, Reader] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()  # guards the readers' table, not the reading
        self._is_closed = False

    def read(self, task_range: TaskRange, order: Order | None = None) -> Records:
        """Return the records of a range.

        Parameters
        ----------
        order : ndarray, shape (task_range.count,), int64
            The order in which to return them, as places in the range; None for that of the file.

        Raises
        ------
        DataError
            If the file cannot be read, is damaged, has changed since the job was planned, or does not have these records.
        """
        name, first, count = task_range.name, task_range.first, task_range.count
        reader: Reader | None = None
        try:
            reader = self._reader(name, task_range.file)
            return reader.read(first, count, order)
        except DataError as e:
            told = self._changed_elsewhere(name, task_range.file) or e
            raise DataError(f"{told.message} ({_span(task_range)})", told.help) from e
        except OSError as e:
            told = unreadable(name, e)
            raise DataError(f"{told.message} ({_span(task_range)})", told.help) from e
        except IndexError as e:
            if reader is None:
                raise
            raise DataError(
                f"{_span(task_range)} of {name} are not there: it has {len(reader)}", CHANGED_HELP
            ) from e

    def use(self, opener: Opener, names: Iterable[str], *, uses_for_others: bool = False) -> None:
        """Have what is called so opened by this from now on: shards of a reader of the model's own.

        Parameters
        ----------
        uses_for_others : bool
            Also what no plan names, since it has come later.
        """
        self._openers.update(dict.fromkeys(names, opener))
        if uses_for_others:
            self._opener_of_others = opener

    def close(self) -> None:
        """Close all files; reading afterwards raises ValueError."""
        with self._lock:
            self._is_closed = True
            readers, self._readers = self._readers, OrderedDict()
        for reader in readers.values():
            reader.close()

    def _changed_elsewhere(self, name: str, later: FileFacts | None) -> DataError | None:
        """Return why what was read makes no sense, if it is that somebody has put another file there."""
        _, facts = self._files.get(name, (None, later))
        if facts is None or not is_address(name):
            return None
        try:
            as_planned(name, facts)
        except DataError as error:
            return error
        return None

    def _reader(self, name: str, later: FileFacts | None) -> Reader:
        """Return an open file; `later`: what it must be like, if it is none of the plan's."""
        with self._lock:
            reader = self._readers.get(name)
            if reader is not None:
                self._readers.move_to_end(name)
                return reader
        others = self._source_of_others if later else DataSource(format=DEFAULT)
        source, facts = self._files.get(name, (others, later))
        opened = self._open(name, source, facts)
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

    def _open(self, name: str, source: DataSource, facts: FileFacts | None) -> Reader:
        opener = self._openers.get(name, self._opener_of_others if name not in self._files else None)
        return opener(name) if opener is not None else format_named(source.format).open(name, source, facts)


def _span(task_range: TaskRange) -> str:
    return f"records {task_range.first} to {task_range.first + task_range.count - 1}"

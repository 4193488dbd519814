"""The bytes of a file elsewhere, as if they were here: blocks of it, kept for a while, and read ahead.

A range is one request, whatever blocks it is in.  Who reads on where the last one ended will go on: the blocks that follow
are asked for meanwhile, by another thread.
"""

import io
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import cast

from edlz.services.errors import DataError
from edlz.services.inputs.places.store import Store, Stored

__all__ = ["RemoteBytes", "open_stream"]

BLOCK_BYTES = 256 << 10  # as long as a span
AHEAD_BLOCKS = 16
KEPT_BLOCKS = 64
_STREAM_BYTES = 1 << 20


class RemoteBytes:
    """Slices of it are bytes; any thread may take some.

    Parameters
    ----------
    stored : Stored
        What the file is like: it is read as that.
    """

    def __init__(self, stored: Stored, store: Store | None = None) -> None:
        self._stored, self._store = stored, store or Store(stored.name)
        self._lock = threading.Lock()  # guards the two below
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()  # least recently used first
        self._next = -1  # the block behind the last one that was asked for

    def __len__(self) -> int:
        return self._stored.size_bytes

    def __getitem__(self, part: slice) -> bytes:
        start, end, _ = part.indices(len(self))
        if start >= end:
            return b""
        first, last = start // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        blocks = self._asked(first, last)
        pieces = [blocks[number].result() for number in range(first, last)]
        base = first * BLOCK_BYTES
        return b"".join(pieces)[start - base : end - base]

    def _asked(self, first: int, last: int) -> dict[int, Future[bytes]]:
        """Return blocks that are here or on their way; fetch those that are neither."""
        with self._lock:
            mine = self._register(first, last)
            is_going_on = first > 0 and first in (self._next, self._next - 1)
            end = min(last + AHEAD_BLOCKS, -(-len(self) // BLOCK_BYTES))
            ahead = self._register(last, end) if is_going_on else []
            self._next = last
            found = {number: self._blocks[number] for number in range(first, last)}
            for number in found:
                self._blocks.move_to_end(number)
            while len(self._blocks) > max(KEPT_BLOCKS, last - first + AHEAD_BLOCKS):
                self._blocks.popitem(last=False)
        for run in ahead:
            _ahead().submit(self._fetch, run)
        for run in mine:
            self._fetch(run)
        return found

    def _register(self, first: int, last: int) -> list[dict[int, Future[bytes]]]:
        """Return the runs of blocks that somebody has to fetch now."""
        runs: list[dict[int, Future[bytes]]] = []
        before = -2
        for number in range(first, last):
            if number in self._blocks:
                continue
            if number != before + 1:
                runs.append({})
            self._blocks[number] = runs[-1][number] = Future()
            before = number
        return runs

    def _fetch(self, run: dict[int, Future[bytes]]) -> None:
        """Get a run of blocks by one request; who waits for one gets it, or the error."""
        numbers = list(run)
        start, end = numbers[0] * BLOCK_BYTES, min((numbers[-1] + 1) * BLOCK_BYTES, len(self))
        try:
            data = self._ranged(start, end)
        except BaseException as error:
            with self._lock:  # whoever wants them next tries again
                for number, block in run.items():
                    if self._blocks.get(number) is block:
                        del self._blocks[number]
            for block in run.values():
                block.set_exception(error)
            return
        for number, block in run.items():
            at = number * BLOCK_BYTES - start
            block.set_result(data[at : at + BLOCK_BYTES])

    def _ranged(self, start: int, end: int) -> bytes:
        name = self._stored.name
        data = self._store.read(name, start, end)
        if len(data) == end - start:
            return data
        if len(data) == len(self):
            raise DataError(
                f"{name}: the server gives whole files only, and no ranges of them",
                "copy it to where ranges can be read, or to the machines of the workers",
            )
        raise DataError(
            f"{name}: the server gave {len(data)} bytes of the {end - start} from offset {start} on",
            "the file has changed since the job began: put it back, or start a new job",
        )


class _Stream(io.RawIOBase):
    """A file for those who read one from its beginning, or jump in it."""

    def __init__(self, content: RemoteBytes) -> None:
        self._content, self._at = content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._content)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        data = self._content[self._at : self._at + len(buffer)]
        memoryview(buffer).cast("B")[: len(data)] = data
        self._at += len(data)
        return len(data)


def open_stream(content: RemoteBytes) -> io.BufferedReader:
    """Return a file of these bytes, at its beginning."""
    return io.BufferedReader(cast(io.RawIOBase, _Stream(content)), _STREAM_BYTES)


@cache
def _ahead() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, thread_name_prefix="read-ahead")

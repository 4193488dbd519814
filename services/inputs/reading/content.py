"""The bytes of a file, here or elsewhere, also of a gzipped one: those are unpacked once, into a file without a name.

A gzipped file has to be read from its beginning to get at its middle.  Whoever opens one unpacks it, once for as long as
it is open, and then reads as from any other; the room is taken in the folder for temporary files (TMPDIR).
"""

import gzip
import mmap
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from edlz.services.configuration.data_addresses import is_address
from edlz.services.errors import DataError
from edlz.services.inputs.places.remote_bytes import RemoteBytes, open_stream
from edlz.services.inputs.places.store import Stored, look_elsewhere
from edlz.services.inputs.reading.format import changed
from edlz.services.protocol.plan import FileFacts

__all__ = [
    "QUICK_BYTES",
    "Content",
    "as_planned",
    "length_of",
    "look",
    "open_content",
    "open_stored",
    "read_start",
    "size_of",
]

QUICK_BYTES = 64 << 20  # files of this size in all are read in a tenth of a second
_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK_BYTES = 1 << 20
_AGAIN = "get the whole file again; gzip -t tells whether it is whole"


def look(name: str) -> Stored:
    """Return what a file is like, as it is stored.

    Raises
    ------
    OSError, DataError
        If it is not there, or nobody says.
    """
    return look_elsewhere(name) if is_address(name) else Stored(name, os.stat(name).st_size, "")


def size_of(name: str) -> int:
    """Return how many bytes a file has, as it is stored."""
    return look(name).size_bytes


def as_planned(name: str, facts: FileFacts) -> Stored:
    """Return what a file is like.

    Raises
    ------
    DataError
        If it is not what it was when the job was planned, as far as it is seen from without.
    """
    found = look(name)
    if found.size_bytes != facts.size_bytes or found.mark != facts.mark:
        raise changed(name, facts, found.size_bytes)
    return found


def length_of(file: IO[bytes]) -> int:
    """Return how many bytes an open file has; it stands where it stood."""
    at = file.tell()
    length = file.seek(0, os.SEEK_END)
    file.seek(at)
    return length


def open_stored(name: str) -> IO[bytes]:
    """Open a file as it is stored, at its beginning."""
    return open_stream(RemoteBytes(look(name))) if is_address(name) else open(name, "rb")


@contextmanager
def open_content(name: str) -> Iterator[IO[bytes]]:
    """Open a file at the beginning of its content.

    Raises
    ------
    OSError
        If it cannot be opened.
    DataError
        If it is gzipped, and damaged or cut off.
    """
    with open_stored(name) as file:
        magic = file.read(len(_GZIP_MAGIC))
        file.seek(0)
        if magic != _GZIP_MAGIC:
            yield file
            return
        with tempfile.TemporaryFile() as unpacked:
            _unpack(name, file, unpacked)
            unpacked.seek(0)
            yield unpacked


def read_start(name: str, count: int) -> bytes:
    """Return the first bytes of a file's content, without unpacking more than these.

    Raises
    ------
    OSError, DataError
        As `open_content`.
    """
    with open_stored(name) as file:
        found = file.read(count)
        if not found.startswith(_GZIP_MAGIC):
            return found
        file.seek(0)
        with gzip.GzipFile(fileobj=file) as content:
            return _next_block(name, file, content, count)


class Content:
    """The content of a file: mapped, or what has been asked for of one elsewhere.

    Parameters
    ----------
    facts : FileFacts
        What the file, as it is stored, must be like.
    """

    def __init__(self, name: str, facts: FileFacts) -> None:
        stored = as_planned(name, facts)
        self._data: mmap.mmap | bytes | RemoteBytes = b""
        if is_address(name):
            content = RemoteBytes(stored)
            if content[: len(_GZIP_MAGIC)] != _GZIP_MAGIC:
                self._data = content
                return
        with open_content(name) as file:
            if length_of(file):
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def view(self, start: int, end: int) -> memoryview:
        """Return the bytes from `start` to before `end`, as far as there are any."""
        data = self._data
        if isinstance(data, RemoteBytes):
            return memoryview(data[start:end])
        return memoryview(data)[start:end]

    def close(self) -> None:
        """Let go of the file; a read that is under way still ends."""
        self._data = b""


def _unpack(name: str, file: IO[bytes], into: IO[bytes]) -> None:
    with gzip.GzipFile(fileobj=file) as content:
        while block := _next_block(name, file, content):
            try:
                into.write(block)
                into.flush()
            except OSError as e:
                message = f"{name} cannot be unpacked into {tempfile.gettempdir()}: {e.strerror or e}"
                raise DataError(
                    message, "set TMPDIR to a folder with more room, or unpack the file: gunzip"
                ) from e


def _next_block(name: str, file: IO[bytes], content: gzip.GzipFile, count: int = _BLOCK_BYTES) -> bytes:
    try:
        return content.read(count)
    except EOFError as e:
        message = f"{name} is cut off: its gzip data ends at offset {size_of(name)}, in the middle"
        raise DataError(message, _AGAIN) from e
    except (gzip.BadGzipFile, zlib.error) as e:
        message = f"{name} is damaged: its gzip data cannot be unpacked before offset {file.tell()} ({e})"
        raise DataError(message, _AGAIN) from e

"""Writes RecordIO files of the current format.  Its bytes are described in `_recordio_format`."""

import errno
import os
import secrets
import warnings
import zlib
from gzip import compress
from types import TracebackType
from typing import Literal, Self

from edlz.api._recordio_format import COMPRESSORS, HEADER, LENGTH, MAGIC

__all__ = ["Writer"]

_MAX_RECORD_BYTES = 0xFFFFFFFF - LENGTH.size  # a chunk's size is a uint32, and so is a record's
_GZIP_LEVEL = 6


class Writer:
    """Writes a RecordIO file; it appears under its name only when it is whole.

    Parameters
    ----------
    path : str or path
        Replaced if it exists.
    chunk_bytes : int, > 0
        A chunk is closed before it grows beyond this many uncompressed bytes.
    compressor : {"none", "gzip"}

    Raises
    ------
    ValueError
        If an argument is out of range.
    OSError
        If the file cannot be made.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        chunk_bytes: int = 1 << 20,
        compressor: Literal["none", "gzip"] = "none",
    ) -> None:
        self._temp_path = ""  # of the file being written; empty when there is none
        if chunk_bytes <= 0:
            raise ValueError(f"chunk_bytes={chunk_bytes} is not positive; 1048576 is a good size")
        if compressor not in ("none", "gzip"):
            raise ValueError(f"compressor={compressor!r} is none of 'none', 'gzip'; choose one of these")
        self.path = os.fspath(path)
        self._chunk_bytes = chunk_bytes
        self._compressor = COMPRESSORS[compressor]
        self._body = bytearray()
        self._records = 0  # in the open chunk
        self._is_empty = True  # no chunk is in the file yet
        folder, name = os.path.split(self.path)
        temp_path = os.path.join(folder, f".{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        self._file = open(temp_path, "xb")  # noqa: SIM115 - held until close()
        self._temp_path = temp_path

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Append a record; it is copied, so that the buffer may be used again.

        Raises
        ------
        TypeError
            If it is not bytes-like.
        ValueError
            If it is too long (4 GiB), or the writer is closed.
        OSError
            If the disk takes no more.
        """
        if not self._temp_path:
            raise ValueError(f"the writer of {self.path} is closed; make a new one")
        if not isinstance(record, bytes):
            if not isinstance(record, bytearray | memoryview):
                raise TypeError(f"a record is bytes, not {type(record).__name__}; encode it first")
            record = bytes(record)
        length = len(record)
        if length > _MAX_RECORD_BYTES:
            raise ValueError(f"a record of {length} bytes does not fit a chunk (4 GiB); split it")
        if self._records and len(self._body) + LENGTH.size + length > self._chunk_bytes:
            self._write_chunk()
        self._body += LENGTH.pack(length)
        self._body += record
        self._records += 1

    def close(self) -> None:
        """Write the last chunk and give the file its name.  A second call does nothing.

        Raises
        ------
        OSError
            If that fails; then no file is left.
        """
        if not self._temp_path:
            return
        try:
            # A file without records gets one empty chunk, so that it differs from one that was cut off.
            if self._records or self._is_empty:
                self._write_chunk()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._temp_path, self.path)
        except BaseException:
            self.abort()
            raise
        self._temp_path = ""

    def abort(self) -> None:
        """Give the file up: nothing is left of it."""
        if not self._temp_path:
            return
        temp_path, self._temp_path = self._temp_path, ""
        try:
            self._file.close()
        except OSError:
            # A full disk shows once more, as the buffer is flushed; the file goes away all the same.
            pass
        finally:
            os.unlink(temp_path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if self._temp_path:
            warnings.warn(
                f"the writer of {self.path} was never closed; its records are lost",
                ResourceWarning,
                stacklevel=2,
            )
            self.abort()

    def _write_chunk(self) -> None:
        body: bytes | bytearray = self._body
        if self._compressor == COMPRESSORS["gzip"] and self._records:
            body = compress(self._body, _GZIP_LEVEL, mtime=0)
        compressor = self._compressor if self._records else COMPRESSORS["none"]
        try:
            self._file.write(HEADER.pack(MAGIC, zlib.crc32(body), compressor, len(body), self._records))
            self._file.write(body)
        except OSError as error:
            raise OSError(error.errno or errno.EIO, error.strerror, self.path) from error
        self._body = bytearray()
        self._records = 0
        self._is_empty = False

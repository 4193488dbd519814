"""Bytes and names that are on the disk when the call returns."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from edlz.services.process.descriptors import spared

__all__ = ["NO_ROOM", "fsync_path", "make_folder", "replace_file", "write_all", "write_file"]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # a disk that is full, or a user's share of it


def write_all(descriptor: int, data: memoryview, path: Path) -> None:
    """Write all of the bytes; `path` is for the error.

    Raises
    ------
    OSError
        If the disk is full or fails, with its errno and the path.
    """
    while data:
        try:
            count = os.write(descriptor, data)
        except OSError as e:
            raise OSError(e.errno, os.strerror(e.errno or 0), str(path)) from e
        data = data[count:]


@spared
def write_file(path: Path, data: bytes) -> None:
    """Write a small file anew and make its content durable (not yet its name)."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, memoryview(data), path)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes | str) -> None:
    """Put content in the place of a file, whole or not at all; it is durable when this returns.

    Raises
    ------
    OSError
        If the disk is full or fails, with its errno and the path; what was there before is there still.
    """
    data = content.encode() if isinstance(content, str) else content
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_file(unfinished, data)
        os.replace(unfinished, path)
    except OSError as e:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise OSError(e.errno, os.strerror(e.errno or 0), str(path)) from e
    fsync_path(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that do not exist; their names are durable when this returns."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        fsync_path(path.parent)


@spared
def fsync_path(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

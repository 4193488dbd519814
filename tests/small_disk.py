"""A small disk that a test fills and frees; making one wants root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill", "small_disk"]

_FILLER = "filler"


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Lay an empty disk of this size on a folder; the test is skipped where that is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={kilobytes}k,mode=700,uid={os.getuid()}"
    try:
        command = ["mount", "-t", "tmpfs", "-o", options, "edlz-test", str(folder)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no disk can be mounted: {error}")
    if made.returncode:
        pytest.skip(f"no disk can be mounted: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def fill(disk: Path) -> Iterator[None]:
    """Fill a disk to its last byte; it has room again afterwards."""
    filler = disk / _FILLER
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(descriptor, b"\0" * 4096)
    except OSError:
        pass  # which is what it is for
    finally:
        os.close(descriptor)
    try:
        yield
    finally:
        filler.unlink()

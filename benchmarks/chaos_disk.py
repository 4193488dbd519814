"""A small disk for one run, which can be filled: a file system in memory, mounted over the job's folder (root, Linux)."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["SmallDisk", "can_mount"]

SIZE = "96m"  # what a run leaves is a tenth of it
_PIECES = (1 << 20, 1 << 12, 1)


def can_mount() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("mount") is not None


class SmallDisk:
    """A context manager; at its end the disk's files lie in the folder itself.

    Parameters
    ----------
    folder : Path
        It is there, and empty.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._filler = folder / "filler"

    def __enter__(self) -> "SmallDisk":
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "edlz-chaos", self._folder], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        kept = self._folder.with_name(f"{self._folder.name}.kept")
        shutil.copytree(self._folder, kept)
        subprocess.run(["umount", "--lazy", self._folder], check=True)
        self._folder.rmdir()
        kept.rename(self._folder)

    def fill(self) -> int:
        """Write until nothing more goes in, also what has become free meanwhile; return the bytes written."""
        written = 0
        with self._filler.open("ab", buffering=0) as file:
            for size in _PIECES:
                piece = bytes(size)
                with contextlib.suppress(OSError):
                    while count := file.write(piece):
                        written += count
        return written

    def empty(self) -> None:
        self._filler.unlink()

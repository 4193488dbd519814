"""Where exports lie: folders with rising numbers, which appear whole or not at all.

    OUTPUT/1/  OUTPUT/2/        finished exports, never touched again
    OUTPUT/.tmp-edlz-<random>/  one that is being written; what a killed process left is removed by the next

The name appears by a rename, after every file and folder in it is on the disk.  A folder that is being written is
locked as long as its process lives.
"""

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edlz.services.storage.durable import fsync_path

__all__ = ["find_version", "publish_file", "publish_folder", "staging", "versions_in"]

_PREFIX = ".tmp-edlz-"
_RANDOM_BYTES = 6
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """Make a folder in `root` to write in; it is gone afterwards, unless it was published.

    Raises
    ------
    OSError
        If `root` cannot be made or written to.
    """
    root.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(root)
    folder, lock = _make_locked(root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def publish_folder(staged: Path, root: Path, is_same: Callable[[Path], bool] = lambda _: False) -> Path:
    """Make a staged folder durable and give it the next number in `root`; return its new place.

    Of several processes that publish the same thing at once, one does: a number is looked for first, then what lies
    under all numbers, so whoever is second either finds the first one's folder or meets its number and looks again.

    Parameters
    ----------
    is_same : callable
        Whether a numbered folder is what is to be published: then that is its place, and the staged one is left.

    Raises
    ------
    OSError
        If the disk is full or fails; nothing has appeared then.
    """
    _make_durable(staged)
    number = max(versions_in(root), default=0) + 1
    while True:
        if (same := find_version(root, is_same)) is not None:
            return same
        place = root / str(number)
        try:
            if os.path.lexists(place):  # an empty folder would be replaced
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
            os.rename(staged, place)
        except OSError as e:
            if e.errno not in _TAKEN:
                raise
            number += 1
            continue
        fsync_path(root)
        return place


def publish_file(staged: Path, place: Path) -> None:
    """Make a staged file durable and put it where another one may be; that is there until this one is."""
    fsync_path(staged)
    os.replace(staged, place)
    fsync_path(place.parent)


def find_version(root: Path, is_wanted: Callable[[Path], bool]) -> Path | None:
    """Return the newest numbered folder that is wanted."""
    places = (root / str(number) for number in sorted(versions_in(root), reverse=True))
    return next((place for place in places if is_wanted(place)), None)


def versions_in(root: Path) -> list[int]:
    """Return the numbers that are taken in a folder of exports."""
    return [int(entry.name) for entry in root.iterdir() if entry.name.isascii() and entry.name.isdigit()]


def _make_locked(root: Path) -> tuple[Path, int]:
    while True:
        folder = root / f"{_PREFIX}{secrets.token_hex(_RANDOM_BYTES)}"
        folder.mkdir()
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # taken for a leftover before it was locked
        if _has_lock(lock) is not False and folder.exists():
            return folder, lock
        os.close(lock)


def _has_lock(descriptor: int) -> bool | None:
    """Lock a folder; return whether that worked, None where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True


def _remove_leftovers(root: Path) -> None:
    for folder in root.glob(f"{_PREFIX}{'[0-9a-f]' * (2 * _RANDOM_BYTES)}"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # gone meanwhile, or no folder of ours
        try:
            if _has_lock(lock):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _make_durable(folder: Path) -> None:
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            fsync_path(Path(parent, name))
        fsync_path(Path(parent))

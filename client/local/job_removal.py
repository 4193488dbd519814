"""Removing a job: its own folder, and nothing that lies anywhere else.

Only a folder that carries the mark of a job is touched.  Links in it are removed as links, never followed.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from edlz.client.job_files.job_index import MARK, LocalJob, forget
from edlz.client.local.job_directory import hold_idle_job
from edlz.client.local.job_lock import LOCK, lock_holder
from edlz.services.errors import ConfigError

__all__ = ["remove_job"]


def remove_job(job: LocalJob) -> int:
    """Remove a job that does not run; return the bytes that its files took.

    Raises
    ------
    ConfigError
        If it runs, its folder is not one that edlz made, or a file in it cannot be removed.
    """
    path = job.path
    _refuse(path)
    holder = lock_holder(path)
    if holder is not None:
        raise ConfigError(
            f'job "{job.name}" is running (pid {holder.pid})',
            f"edlz stop {job.word}, then edlz rm {job.word}",
        )
    with hold_idle_job(path, job.name):
        size_bytes = _size_bytes(path)
        try:
            for entry in list(os.scandir(path)):
                if entry.name in (
                    MARK,
                    LOCK,
                ):  # last: what is left of a removal that fails can be removed again
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
            (path / MARK).unlink()
        except OSError as e:
            raise ConfigError(
                f"{e.filename} cannot be removed: {e.strerror}", f"then again: edlz rm {job.word}"
            ) from e
    with suppress(OSError):  # a new job of the name may have begun
        path.rmdir()
    forget(job)
    return size_bytes


def _refuse(path: Path) -> None:
    if path.is_symlink():
        raise ConfigError(f"{path} is a link", f"name the folder itself: edlz rm {path.resolve()}")
    mark = path / MARK
    if mark.is_symlink() or not mark.is_file():
        raise ConfigError(f"{path} does not carry the mark of a job ({MARK})", "remove it by hand")
    whole = path.resolve()
    if Path.cwd().is_relative_to(whole):
        raise ConfigError(f"you are in {path}, which is to be removed", "leave it first: cd")
    if Path.home().resolve().is_relative_to(whole):
        raise ConfigError(f"{path} holds your home folder", "remove the job's files by hand")


def _size_bytes(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        total += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
    return total

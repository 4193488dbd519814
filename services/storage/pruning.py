"""Removing checkpoints that are no longer kept: only files known by name, and a folder only when empty."""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from edlz.services.process.descriptors import spared
from edlz.services.storage.checkpoint_records import (
    MANIFEST,
    is_checkpoint_file,
    partitions_of,
    version_folder,
)
from edlz.services.storage.durable import fsync_path
from edlz.services.storage.versions import VersionInfo, list_versions, look_at

__all__ = ["prune", "remove_unfinished", "remove_version"]

logger = logging.getLogger(__name__)


def prune(
    checkpoint_dir: Path, keep: int, *, needed: Collection[int] = (), finished: int | None = None
) -> tuple[int, ...]:
    """Remove the versions that are not kept; return them.

    To be called by the job that writes there, after it has finished a version.  What goes: of the good
    versions all but the newest `keep` (and the damaged ones older than those), and versions below the one
    just finished that will never be, with half-written files that a killed process left.  The newest good
    version always stays, and so does what is needed.

    Parameters
    ----------
    checkpoint_dir : Path
        The folder; for one job at a time.
    keep : int
        How many; 0: all.
    needed : collection of int
        Versions that the job may have to read again: they stay, beyond those that are kept.
    finished : int, optional
        The version just finished; the newest good one when not given.

    Raises
    ------
    OSError
        If the folder cannot be read, or a file not be removed.
    """
    versions = list_versions(checkpoint_dir)
    good = [info for info in versions if info.is_good]
    if not good:
        return ()
    oldest_kept = good[min(keep, len(good)) - 1] if keep else versions[-1]
    beyond = [info for info in versions[versions.index(oldest_kept) + 1 :] if info.state != "incomplete"]
    finished = good[0].version if finished is None else finished
    # By number, not by time: a part of the next version may be older than this one's manifest.
    abandoned = [info for info in versions if info.state == "incomplete" and info.version < finished]
    removed = [info for info in (*beyond, *abandoned) if info.version not in needed]
    for info in removed:
        _remove(info)
    _remove_leftovers(version_folder(checkpoint_dir, finished), versions)
    return tuple(info.version for info in removed)


def remove_unfinished(checkpoint_dir: Path, version: int) -> None:
    """Remove the parts of a version that will not be completed; one with a manifest stays.

    Raises
    ------
    OSError
        If a file cannot be removed.
    """
    folder = version_folder(checkpoint_dir, version)
    if folder.is_dir() and (info := look_at(folder)).state == "incomplete":
        _remove(info)


def remove_version(checkpoint_dir: Path, version: int, job: str) -> None:
    """Remove a version that a job has finished, if it is there; one of another job stays.

    Raises
    ------
    OSError
        If a file cannot be removed.
    """
    folder = version_folder(checkpoint_dir, version)
    if not folder.is_dir():
        return
    info = look_at(folder)
    if info.manifest is not None and info.manifest.job == job:
        _remove(info)


@spared
def _remove(info: VersionInfo) -> None:
    """The manifest goes first, so that no moment shows a valid version with files missing."""
    manifest = info.folder / MANIFEST
    if manifest.exists():
        manifest.unlink()
        fsync_path(info.folder)
    for path in info.folder.iterdir():
        if is_checkpoint_file(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)
    try:
        info.folder.rmdir()
    except OSError:
        logger.warning("%s holds files that are no checkpoint's: it stays", info.folder)


@spared
def _remove_leftovers(folder: Path, versions: Sequence[VersionInfo]) -> None:
    """A finished version needs no temporary file of its own parts: a killed process has left it.

    Those of another number of parts may be written now, by the members of a group that has changed.
    """
    [manifest] = [info.manifest for info in versions if info.folder == folder] or [None]
    parts = None if manifest is None else manifest.partitions
    for path in folder.iterdir():
        is_temporary = path.name.endswith(".tmp") and is_checkpoint_file(path.name) and not path.is_dir()
        if is_temporary and partitions_of(path.name) in (None, parts):
            path.unlink(missing_ok=True)

"""The versions in a checkpoint folder: which there are, which are whole, which is the newest good one.

Newest means last written, not highest: a job that went back to an older version and on from there leaves
higher versions of an earlier run behind it.  Runs follow each other by their numbers, versions of a run by
theirs; no clock is asked, except about runs of an edlz that did not number them, which come before all others.
When a task is ended before its records are, versions of before are of an older history, however high.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from edlz.services.errors import DataError
from edlz.services.process.descriptors import spared
from edlz.services.storage.blocks import DamagedFile
from edlz.services.storage.checkpoint_records import (
    MANIFEST,
    PART_HEAD,
    Manifest,
    check_part,
    part_head,
    read_manifest,
    version_of,
)
from edlz.services.storage.state_file import verify_state
from edlz.services.storage.state_head import StateHead, body_of, read_head

__all__ = [
    "Damage",
    "NoCheckpoint",
    "VersionInfo",
    "heads_of",
    "list_versions",
    "look_at",
    "newest_good",
    "newest_run",
    "verify",
]

logger = logging.getLogger(__name__)


class NoCheckpoint(DataError):
    """A path holds no checkpoint that could be used."""

    exit_code = 4


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a version; `part` None: the manifest."""

    path: Path
    part: tuple[int, int] | None
    reason: str

    @property
    def short(self) -> str:
        """As it stands in a table: `part 0, checksum`."""
        return f"{self._what}, {self.reason}"

    def __str__(self) -> str:
        of = f" of {self.part[1]}" if self.part else ""
        verb = "is missing" if self.reason == "missing" else f"is damaged ({self.reason})"
        return f"{self._what}{of} {verb}"

    @property
    def _what(self) -> str:
        return f"part {self.part[0]}" if self.part else "manifest"


class VersionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A version as a quick look shows it: sizes are checked, and the checksums of the small files.

    `parts` is how many of `partitions` are there; `at` when it was finished (or last touched), as a time.
    """

    version: int
    folder: Path
    state: Literal["good", "incomplete", "damaged"]
    damage: tuple[Damage, ...]
    manifest: Manifest | None
    parts: int
    partitions: int
    size_bytes: int
    at: float

    @property
    def is_good(self) -> bool:
        return self.state == "good"


@spared
def list_versions(checkpoint_dir: Path) -> list[VersionInfo]:
    """Return all versions in a folder, the newest first; tensors are not read.

    Raises
    ------
    OSError
        If the folder cannot be read; one that does not exist has no versions.
    """
    if not checkpoint_dir.is_dir():
        return []
    found = []
    for folder in checkpoint_dir.iterdir():
        version = version_of(folder)
        if version is not None and folder.is_dir() and not folder.is_symlink():
            try:
                found.append(look_at(folder))
            except FileNotFoundError:
                continue  # pruned meanwhile
    last_of: dict[str, float] = {}  # of runs without a number
    for info in found:
        if info.manifest is not None and not info.manifest.run_number:
            run = info.manifest.run
            last_of[run] = max(last_of.get(run, 0.0), info.at)

    def run_of(manifest: Manifest) -> tuple[int, float, int]:
        """The run, and how far its history has come: a task that is ended begins another one."""
        clock = 0.0 if manifest.run_number else last_of.get(manifest.run, 0.0)
        return (manifest.run_number, clock, len(manifest.ends or ()))

    # What has no manifest is taken for the latest run's.
    latest = max((run_of(info.manifest) for info in found if info.manifest), default=(0, 0.0, 0))

    def age(info: VersionInfo) -> tuple[tuple[int, float, int], int]:
        return (run_of(info.manifest) if info.manifest else latest, info.version)

    return sorted(found, key=age, reverse=True)


@spared
def newest_run(checkpoint_dir: Path) -> tuple[int, str]:
    """Return the greatest number of a run that has finished a version in a folder, and the run's name.

    Raises
    ------
    OSError
        If the folder cannot be read; one that does not exist has no runs: number 0, without a name.
    """
    newest = (0, "")
    if checkpoint_dir.is_dir():
        for folder in checkpoint_dir.iterdir():
            if version_of(folder) is not None and folder.is_dir() and not folder.is_symlink():
                try:
                    manifest = read_manifest(folder)
                except DamagedFile:
                    continue
                newest = max(newest, (manifest.run_number, manifest.run))
    return newest


@spared
def look_at(folder: Path) -> VersionInfo:
    """Return what a quick look at a version's folder shows."""
    version = version_of(folder)
    assert version is not None, folder
    files = {entry.name: entry.stat() for entry in folder.iterdir() if entry.is_file()}
    matches = [found for name in files if (found := PART_HEAD.fullmatch(name))]
    heads = [(int(m[1]), int(m[2])) for m in matches if body_of(folder / m[0]).name in files]
    if MANIFEST not in files:
        partitions = max((count for _, count in heads), default=0)
        return VersionInfo(
            version=version,
            folder=folder,
            state="incomplete",
            damage=(),
            manifest=None,
            parts=sum(count == partitions for _, count in heads),
            partitions=partitions,
            size_bytes=sum(stat.st_size for stat in files.values()),
            at=folder.stat().st_mtime,
        )
    manifest, damage = _damage_of(folder, is_full=False)
    partitions = manifest.partitions if manifest else max((count for _, count in heads), default=0)
    return VersionInfo(
        version=version,
        folder=folder,
        state="damaged" if damage else "good",
        damage=damage,
        manifest=manifest,
        parts=sum(head in heads for head in ((i, partitions) for i in range(partitions))),
        partitions=partitions,
        size_bytes=manifest.size_bytes if manifest else sum(stat.st_size for stat in files.values()),
        at=manifest.created_at if manifest else folder.stat().st_mtime,
    )


def heads_of(info: VersionInfo) -> list[StateHead]:
    """Return the heads of all parts of a version that has a manifest.

    Raises
    ------
    DamagedFile
        If one is not whole.
    """
    return [read_head(part_head(info.folder, i, info.partitions))[0] for i in range(info.partitions)]


def verify(folder: Path, on_read: Callable[[int], None] = lambda _: None) -> tuple[Damage, ...]:
    """Read a version to the last byte; return what is wrong with it, nothing if it is good.

    Parameters
    ----------
    on_read : callable, optional
        Told of so many bytes more that were read.
    """
    return _damage_of(folder, is_full=True, on_read=on_read)[1]


def newest_good(path: Path, plan_hash: str = "") -> Path:
    """Return the folder of the newest good version, verified to the last byte.

    Parameters
    ----------
    path : Path
        A checkpoint folder, of which the newest good version is taken and each one skipped is logged; or
        the folder of one version, which then must be good.
    plan_hash : str, optional
        Only versions of this plan are taken: others may have used the folder.

    Raises
    ------
    NoCheckpoint
        If there is none, naming what is wrong with each.
    """
    if version_of(path) is not None and path.is_dir():
        return _this_one(path)
    bad: list[tuple[Path, str]] = []
    for info in list_versions(path):
        is_foreign = plan_hash and info.manifest is not None and info.manifest.plan_hash != plan_hash
        reason = "of another plan" if is_foreign else _why_not(info)
        if not reason:
            for folder, damage in bad:
                logger.warning("checkpoint %s is skipped: %s", folder, damage)
            return info.folder
        bad.append((info.folder, reason))
    if bad:
        why = "; ".join(f"{folder.name}: {damage}" for folder, damage in bad)
        raise NoCheckpoint(
            f"{path} holds no good checkpoint: {why}",
            f"put a good copy of one of them back; what is wrong with each file: edlz checkpoint verify {path}",
        )
    what = (
        "holds no checkpoint" if path.is_dir() else "does not exist" if not path.exists() else "is no folder"
    )
    raise NoCheckpoint(f'checkpoint "{path}" {what}', "name a checkpoint folder, or a version-<V> in it")


def _this_one(folder: Path) -> Path:
    info = look_at(folder)
    reason = _why_not(info)
    if not reason:
        return folder
    for other in list_versions(folder.parent):
        if other.folder.name != folder.name and not _why_not(other):
            raise NoCheckpoint(f"{folder}: {reason}", f"newest good one: {other.folder}")
    raise NoCheckpoint(f"{folder}: {reason}", "there is no other good one beside it")


def _why_not(info: VersionInfo) -> str:
    """Return why a version cannot be used, nothing if it can; reads all of it unless a look is enough."""
    if info.state == "incomplete":
        return "it was never finished (no manifest)"
    damage = info.damage or verify(info.folder)
    return ", ".join(str(one) for one in damage)


def _damage_of(
    folder: Path, *, is_full: bool, on_read: Callable[[int], None] = lambda _: None
) -> tuple[Manifest | None, tuple[Damage, ...]]:
    try:
        manifest = read_manifest(folder)
    except (DamagedFile, OSError) as error:
        return None, (_damage(folder / MANIFEST, None, error),)
    damage = []
    for i, part in enumerate(manifest.parts):
        head = part_head(folder, i, manifest.partitions)
        try:
            check_part(head, part)
            if is_full:
                verify_state(head, on_read)
        except (DamagedFile, OSError) as error:
            damage.append(_damage(head, (i, manifest.partitions), error))
    return manifest, tuple(damage)


def _damage(path: Path, part: tuple[int, int] | None, error: DamagedFile | OSError) -> Damage:
    if isinstance(error, DamagedFile):
        return Damage(path=error.path, part=part, reason=error.reason)
    return Damage(path=path, part=part, reason=error.strerror or str(error))

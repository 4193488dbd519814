"""The folder of a job's predictions: whose it is, a file for each task, and the manifest that makes them whole.  Statistics
have one, too: there a file is made of all the tasks', which then go.

Theory of operation.  A job claims its folder by a small file before any worker writes there, and keeps it until the
manifest is there.  A task's file is written beside its place, made durable, and renamed; two workers with the same
task write the same bytes, so whoever comes last changes nothing.  A process of another run, or one that comes after
the manifest, finds no claim of its own and puts nothing in place.  Without a manifest the predictions are not whole.
The content of a task's file is durable when the task is reported; its name becomes so with the manifest, before which
each file is looked for, so a name that a power failure has taken away costs time only.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from edlz.services import strict_json
from edlz.services.errors import ConfigError, DataError
from edlz.services.predictions.kinds import PREDICTIONS, OutputKind
from edlz.services.protocol.messages import PartFile
from edlz.services.storage.durable import fsync_path, make_folder, replace_file

__all__ = [
    "MANIFEST",
    "Part",
    "PredictionManifest",
    "check_free",
    "claim",
    "part_name",
    "publish",
    "publish_made",
    "read_manifest",
    "write_part",
]

MANIFEST = PREDICTIONS.whole
CLAIM = ".unfinished.json"
_OF_FILE_SYSTEMS = "lost+found"
_PART = re.compile(r"part-\d+-of-\d+\.\w+")
_TEMPORARY = re.compile(r"\.+part-\d+-of-\d+\.\w+\..*tmp")


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    run: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The file of one task: `records` records of a shard, from number `first` on."""

    file: str
    task: int
    shard: str
    first: int
    records: int
    bytes: int
    checksum: str


class PredictionManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What makes predictions whole; the same for the same work, whatever was lost on the way.

    Attributes
    ----------
    checkpoint : str
        The version that predicted.
    records : int
        Rows in all files.
    skipped : tuple of int
        Tasks that were left out (`--skip_bad_tasks`), whose records have no rows.
    """

    job: str
    checkpoint: str
    version: int
    format: str
    records: int
    tasks: int
    parts: tuple[Part, ...]
    skipped: tuple[int, ...] = ()


def part_name(task: int, tasks: int, extension: str) -> str:
    """Return the name of a task's file."""
    return f"part-{task:05d}-of-{tasks:05d}.{extension}"


def read_manifest(folder: Path) -> PredictionManifest | None:
    """Return what a folder of predictions says of them; None if they are not whole.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    try:
        return strict_json.parse((folder / MANIFEST).read_bytes(), PredictionManifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{folder / MANIFEST} is no manifest of predictions: {error}") from error


def check_free(folder: Path, job: str, kind: OutputKind = PREDICTIONS) -> None:
    """See that a new run of a job can have a folder: what another one has written there is left alone.

    Raises
    ------
    ConfigError
        If there are files, of predictions or others, that are not an unfinished run's of this job.
    """
    flag = f'{kind.flag} "{folder}"'
    other = f"name an empty or a new folder: another --{kind.flag}, or remove this one"
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{flag} is no folder", "name a folder; it need not exist")
    try:
        manifest = read_manifest(folder) if kind is PREDICTIONS else None
    except DataError as error:
        raise ConfigError(f"{flag}: {error.message}", other) from error
    if manifest is not None:
        count, found = f"{manifest.records:,} records", manifest.job
        raise ConfigError(f'{flag} holds the predictions of job "{found}", {count}', other)
    if (folder / kind.whole).exists():
        raise ConfigError(f"{flag} holds {kind.noun} already, {kind.whole}", other)
    claimed = _claim_in(folder)
    if claimed is not None and claimed.job != job:
        raise ConfigError(
            f'{flag} holds unfinished {kind.noun} of job "{claimed.job}"',
            f"edlz resume {claimed.job}, or {other}",
        )
    if foreign := _foreign(folder, is_claimed=claimed is not None):
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        message = f"{flag} holds {foreign[0]}{more}, which no unfinished run of this job has left there"
        raise ConfigError(message, other)


def claim(folder: Path, job: str, run: str, *, is_new: bool, kind: OutputKind = PREDICTIONS) -> None:
    """Make a folder this run's own, before anybody writes there.

    Parameters
    ----------
    is_new : bool
        It begins, and has nothing to go on with: what an unfinished run of the job has left is removed.

    Raises
    ------
    ConfigError
        If it holds what is not this job's, or cannot be written.
    """
    if is_new:
        check_free(folder, job, kind)
    elif (folder / kind.whole).exists():
        return  # a master that was lost has published it; its successor looks whether it is the same
    try:
        make_folder(folder)
        replace_file(folder / CLAIM, msgspec.json.encode(_Claim(job=job, run=run)))
        if is_new:  # else workers may be writing, who have outlived the master before
            for left in [*_files_in(folder, _TEMPORARY), *_files_in(folder, _PART)]:
                left.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f'{kind.flag} "{folder}" cannot be written: {reason}', "name a folder that can"
        ) from error


def write_part(
    folder: Path,
    name: str,
    run: str,
    tag: str,
    write: Callable[[Path], None],
    kind: OutputKind = PREDICTIONS,
) -> PartFile:
    """Put the file of a task in its place; its content is durable when this returns.

    Nothing is put in place any more once the predictions are whole.

    Parameters
    ----------
    run : of the job
    tag : str
        Tells this process from all others.
    write : callable
        Writes a file of this path.

    Raises
    ------
    ConfigError
        If this run has no claim on the folder: it may be another one than the master's.
    OSError
        If the disk is full or fails; nothing has changed.
    """
    temporary = folder / f".{name}.{tag}.tmp"
    try:
        _check_claim(folder, run, kind)
        write(temporary)
        part = _sealed(temporary)
        if _check_claim(folder, run, kind):
            os.replace(temporary, folder / name)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return part


def publish(folder: Path, manifest: PredictionManifest, run: str) -> tuple[int, ...]:
    """Say that predictions are whole, if their files are as the manifest says; return the tasks whose are not.

    Raises
    ------
    ConfigError
        If the folder is another job's by now.
    OSError
        If the disk is full or fails; there is no manifest then.
    """
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    if (folder / MANIFEST).exists():
        if (folder / MANIFEST).read_bytes() != data:
            raise _taken(folder)
    else:
        claimed = _claim_in(folder)
        if claimed is None or claimed.run != run:
            raise _taken(folder)
        missing = tuple(part.task for part in manifest.parts if not _is_there(folder / part.file, part.bytes))
        if missing:
            return missing
        listed = {part.file for part in manifest.parts}
        for left in [*_files_in(folder, _PART), *_files_in(folder, _TEMPORARY)]:
            if left.name not in listed:
                left.unlink(missing_ok=True)
        fsync_path(folder)
        replace_file(folder / MANIFEST, data)
    (folder / CLAIM).unlink(missing_ok=True)
    fsync_path(folder)
    return ()


def publish_made(
    folder: Path,
    run: str,
    kind: OutputKind,
    parts: Sequence[tuple[int, str, int]],
    make: Callable[[Sequence[Path]], bytes],
) -> tuple[int, ...]:
    """Put the one file there that is made of all the tasks' files, and remove those; return the tasks whose are not there.

    Parameters
    ----------
    parts : sequence of (task, name, bytes)
        In the tasks' order.
    make : callable
        Makes it of them.

    Raises
    ------
    ConfigError
        If the folder is another job's by now.
    OSError
        If the disk is full or fails; what is to be read again is there still.
    """
    claimed, is_made = _claim_in(folder), (folder / kind.whole).exists()
    if (claimed is None and not is_made) or (claimed is not None and claimed.run != run):
        raise _taken(folder, kind)
    if not is_made:
        missing = tuple(task for task, name, size in parts if not _is_there(folder / name, size))
        if missing:
            return missing
        replace_file(folder / kind.whole, make([folder / name for _, name, _ in parts]))
    (folder / CLAIM).unlink(missing_ok=True)
    for left in [*_files_in(folder, _PART), *_files_in(folder, _TEMPORARY)]:
        left.unlink(missing_ok=True)
    fsync_path(folder)
    return ()


def _taken(folder: Path, kind: OutputKind = PREDICTIONS) -> ConfigError:
    return ConfigError(
        f'{kind.flag} "{folder}" is not this job\'s any more: another one has written there meanwhile',
        f"have the {kind.noun} written into a folder that no other job has",
    )


def _claim_in(folder: Path) -> _Claim | None:
    try:
        return strict_json.parse((folder / CLAIM).read_bytes(), _Claim)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def _foreign(folder: Path, *, is_claimed: bool) -> list[str]:
    """Return the names of what others have left in a folder: whoever reads all of it would read that, too.

    In a folder that is the job's own already, only what could be taken for predictions.
    """
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    if is_claimed:
        return [name for name in names if name.startswith("part-") and not _PART.fullmatch(name)]
    visible = [name for name in names if not name.startswith(".") and name != _OF_FILE_SYSTEMS]
    return [name for name in names if name == CLAIM] + visible


def _check_claim(folder: Path, run: str, kind: OutputKind) -> bool:
    """Whether files of this run are wanted in the folder."""
    claimed = _claim_in(folder)
    if claimed is not None and claimed.run == run:
        return True
    if claimed is None and (folder / kind.whole).exists():
        return False
    raise ConfigError(
        f'{kind.flag} "{folder}" is not the folder that the master has made here',
        "it must be one folder that the master and all workers share",
    )


def _sealed(path: Path) -> PartFile:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return PartFile(bytes=file.tell(), checksum=f"sha256:{digest}")


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _files_in(folder: Path, names: re.Pattern[str]) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        entries = []
    return iter([entry for entry in entries if names.fullmatch(entry.name)])

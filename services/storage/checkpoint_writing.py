"""Writing a checkpoint: each partition its part, then the master the manifest.

A version's folder never mixes two cuts unnoticed.  When a part is to be written and a manifest lies there:

- of this very checkpoint (same run, number and ledger): the part is not written again, but reported again.
  A synchronous partition that went back and comes to the version a second time finds it so;
- of a later checkpoint of the run, or one that was finished while this part was being written: the part
  comes too late, from a process that was stalled, and is dropped;
- of this very checkpoint, but of another number of partitions (members of a group that have changed): it stays valid
  until that of the new parts replaces it;
- any other (of an earlier checkpoint or run, or damaged): it is removed before anything is replaced, and
  the version is incomplete until the new manifest is there.  Parts of another number of partitions stay
  beside it, unlisted, and go when the version is pruned.

The manifest names the checksums of its parts, so a part that a stalled process slips into a finished
version makes it damaged, never another version.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from edlz.services.errors import DataError, LocalProtocolError
from edlz.services.protocol.messages import Ends, PartInfo
from edlz.services.storage.blocks import DamagedFile
from edlz.services.storage.checkpoint_records import (
    MANIFEST,
    Manifest,
    Part,
    check_part,
    manifest_data,
    part_head,
    read_manifest,
    version_folder,
)
from edlz.services.storage.durable import fsync_path, make_folder, write_file
from edlz.services.storage.state import State
from edlz.services.storage.state_file import write_state
from edlz.services.storage.state_head import StateHead, body_of
from edlz.services.storage.versions import newest_run

__all__ = ["Finished", "next_run_number", "write_manifest", "write_part"]


def write_part(
    checkpoint_dir: Path, state: State, *, version: int, number: int, run: str, tag: str
) -> PartInfo | None:
    """Make a partition's part of a version durable; return what the master needs for the manifest.

    Parameters
    ----------
    checkpoint_dir : Path
        Made if it does not exist.
    state : State
        Closed at the end, whatever comes of it.
    version, number : int
        Of the checkpoint: one names the folder, the other rises within a run.
    run : str
        Which run of the job: `Job.run`.
    tag : str
        In the names of temporary files: what tells this process from all others, e.g. its boot number.

    Returns
    -------
    PartInfo or None
        None if the part comes too late: a later checkpoint, or another process, has taken the place.

    Raises
    ------
    OSError
        If the disk is full or fails; nothing new is left.
    """
    folder = version_folder(checkpoint_dir, version)
    try:
        make_folder(folder)
        found = _manifest(folder)
        if found is not None and found.run == run:
            if found.number > number:
                return None
            if info := _finished_part(found, folder, state, number):
                return info
        return _write_files(folder, state, found, number=number, run=run, tag=tag)
    finally:
        state.close()


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What the master says of a checkpoint whose parts are all there; the rest is read from the parts' heads.

    Attributes
    ----------
    run_number : int
        Of the run, greater than those of all runs before it in this folder; counted on from them if it is 0.
    ends : tuple of (int, int)
        The tasks that have been ended, by task.
    settings : mapping
        `JobConfig.model_settings`.
    """

    job: str
    run: str
    mode: Literal["sync", "async"]
    number: int
    epoch: int
    minibatches: int
    run_number: int = 0
    ends: Ends = ()
    settings: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


def write_manifest(
    checkpoint_dir: Path, version: int, parts: Sequence[PartInfo], finished: Finished, *, tag: str
) -> Manifest:
    """Make a version valid; return its manifest.

    The parts' heads are read, and their tensors looked at, before anything is written.

    Parameters
    ----------
    parts : sequence of PartInfo
        One of each partition, in any order, all of one cut.
    tag : str
        As in `write_part`.

    Raises
    ------
    LocalProtocolError
        If the parts are not one cut.
    DataError
        If a part is not where the manifest would say, or not what was reported.
    OSError
        If the disk is full or fails; the version then has no manifest.
    """
    parts = sorted(parts, key=lambda part: part.partition)
    if not parts or [(p.partition, p.partitions) for p in parts] != [
        (i, len(parts)) for i in range(len(parts))
    ]:
        raise LocalProtocolError(f"version {version}: not one part of each partition: {parts}")
    folder = version_folder(checkpoint_dir, version)
    heads = [_reported_head(folder, part) for part in parts]
    _check_one_cut(version, heads, finished.mode)
    run_number = finished.run_number or next_run_number(checkpoint_dir, finished.run)
    manifest = _manifest_of(version, parts, heads, replace(finished, run_number=run_number))
    _publish(manifest, folder, tag)
    return manifest


def next_run_number(checkpoint_dir: Path, run: str, least: int = 0) -> int:
    """Return the number of a run that writes to a folder: greater than those of all others, and `least` at least.

    Raises
    ------
    OSError
        If the folder cannot be read.
    """
    number, newest = newest_run(checkpoint_dir)
    return max(least, number if newest == run and number else number + 1)


def _write_files(
    folder: Path, state: State, found: Manifest | None, *, number: int, run: str, tag: str
) -> PartInfo | None:
    """Write a part beside the manifest that was found, then put it in place if the same still lies there."""
    head = part_head(folder, state.partition, state.partitions)
    temporary = [path.with_name(f".{path.name}.{tag}.tmp") for path in (body_of(head), head)]
    table_rows = tuple(rows.row_count for rows in state.rows)
    try:
        written = write_state(state, *temporary)
        now = _manifest(folder)
        if now is None or not _stays(now, state, number=number, run=run):
            if now is not None and now != found:  # finished meanwhile
                return _finished_part(now, folder, state, number) if now.run == run else None
            _remove_manifest(folder)
        os.replace(temporary[0], body_of(head))
        os.replace(temporary[1], head)
        fsync_path(folder)
    except FileNotFoundError:  # whoever has finished the version since took it for a leftover
        now = _manifest(folder)
        if now is None or now.run != run:
            raise
        return _finished_part(now, folder, state, number)
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)
    return PartInfo(
        partition=state.partition,
        partitions=state.partitions,
        bytes=written.body_bytes + written.head_bytes,
        body_checksum=written.body_checksum,
        head_checksum=written.head_checksum,
        rows=table_rows,
    )


def _stays(manifest: Manifest, state: State, *, number: int, run: str) -> bool:
    """Whether a manifest is of the same checkpoint, and lists none of the files of as many partitions as the state's."""
    is_same = (manifest.run, manifest.number, manifest.ledger) == (run, number, state.ledger)
    return is_same and manifest.partitions != state.partitions


def _manifest_of(
    version: int, parts: Sequence[PartInfo], heads: Sequence[StateHead], finished: Finished
) -> Manifest:
    return Manifest(
        job=finished.job,
        run=finished.run,
        plan_hash=heads[0].plan_hash,
        mode=finished.mode,
        version=version,
        number=finished.number,
        epoch=finished.epoch,
        minibatches=finished.minibatches,
        created_at=time.time(),
        ledger=heads[0].ledger,
        run_number=finished.run_number,
        ends=finished.ends,
        parts=tuple(
            Part(
                size_bytes=part.bytes,
                body_checksum=part.body_checksum,
                head_checksum=part.head_checksum,
                table_rows=part.rows,
                era=head.era,
                version=head.version,
            )
            for part, head in zip(parts, heads, strict=True)
        ),
        settings=dict(finished.settings),
    )


def _publish(manifest: Manifest, folder: Path, tag: str) -> None:
    temporary = folder / f".{MANIFEST}.{tag}.tmp"
    try:
        write_file(temporary, manifest_data(manifest))
        os.replace(temporary, folder / MANIFEST)
        try:
            fsync_path(folder)
            fsync_path(folder.parent)
        except BaseException:  # what may be gone after a power failure is not to be found before it
            (folder / MANIFEST).unlink(missing_ok=True)
            raise
    finally:
        temporary.unlink(missing_ok=True)


def _manifest(folder: Path) -> Manifest | None:
    """Return the manifest that lies there, if there is one and it is whole; None otherwise."""
    try:
        return read_manifest(folder)
    except DamagedFile:
        return None


def _finished_part(manifest: Manifest, folder: Path, state: State, number: int) -> PartInfo | None:
    """Return this partition's part of a finished checkpoint, if that is the very one and the part is whole."""
    if (manifest.number, manifest.partitions, manifest.ledger) != (number, state.partitions, state.ledger):
        return None
    part = manifest.parts[state.partition]
    try:
        check_part(part_head(folder, state.partition, state.partitions), part)
    except DamagedFile:
        return None
    return PartInfo(
        partition=state.partition,
        partitions=state.partitions,
        bytes=part.size_bytes,
        body_checksum=part.body_checksum,
        head_checksum=part.head_checksum,
        rows=part.table_rows,
    )


def _remove_manifest(folder: Path) -> None:
    try:
        (folder / MANIFEST).unlink()
    except FileNotFoundError:
        return
    fsync_path(folder)


def _reported_head(folder: Path, part: PartInfo) -> StateHead:
    head = part_head(folder, part.partition, part.partitions)
    try:
        return check_part(head, part)
    except DamagedFile as e:
        shared = "--checkpoint_dir must be one folder that the master and all partitions share"
        raise DataError(
            f"part {part.partition} of {folder.name} is not as reported: {e.message}", shared
        ) from e


def _check_one_cut(version: int, heads: Sequence[StateHead], mode: str) -> None:
    first = heads[0]
    for head in heads:
        for what in ("plan_hash", "ledger", "layout", "optimizer"):
            if getattr(head, what) != getattr(first, what):
                raise LocalProtocolError(f"version {version}: parts 0 and {head.partition} differ in {what}")
        if mode == "sync" and head.version != version:
            raise LocalProtocolError(f"version {version}: part {head.partition} is of {head.version}")

"""A partition's snapshots on disk: written whole or not at all, checked when read.

A snapshot is two files in a life's folder: `<term>.<n>-<version>.safetensors` (the vectors) and
`.json` beside it (ledger, layout, optimizer, and the SHA-256 of the first).  The metadata is written
last and makes the snapshot valid.  Every file appears by write to a temporary name, fsync, rename, fsync
of the folder.  A life writes in its own folder and links what it restores into it, so a stalled process
that wakes up later cannot delete its successor's files (PROTOCOL: section 6).

    <job folder>/ps-<i>/<run>/base/0.0-0.safetensors
    <job folder>/ps-<i>/<run>/<term>.<n>/<term>.<n>-<version>.safetensors
"""

import errno
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from edlz.services.config import edlz_home
from edlz.services.errors import ConfigError, DataError
from edlz.services.layout import Layout
from edlz.services.ledger import LedgerRecord
from edlz.services.messages import Identity, Job, OptimizerSpec, SnapshotName
from edlz.services.ps.store import State

__all__ = ["SnapshotFolder"]

BASE_FOLDER = "base"
FORMAT = 1


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The second file; `format` rises when an older reader could not read it."""

    format: int
    sha256: str
    plan_hash: str
    base_digest: str
    partition: int
    partitions: int
    layout: Layout
    optimizer: OptimizerSpec
    era: Identity
    version: int
    iterations: int
    ledger: LedgerRecord
    slots: tuple[str, ...]


class SnapshotFolder:
    """All snapshots of one partition.

    Parameters
    ----------
    partition : int
        Whose.
    job_folder : Path, optional
        The job's folder; EDLZ_HOME/jobs/NAME when not given, as soon as the name is known.
    """

    def __init__(self, partition: int, job_folder: Path | None = None) -> None:
        self._partition, self._job_folder = partition, job_folder
        self._run: Path | None = None
        self._damaged: set[Path] = set()
        self._listed: tuple[SnapshotName, ...] = ()
        self._listed_at: tuple[int, ...] = ()

    @property
    def _folder(self) -> Path:
        assert self._run is not None, "no job yet"
        return self._run

    def open(self, job: Job) -> None:
        """Find or make the folder of this run of the job.

        Raises
        ------
        ConfigError
            If it cannot be made.
        """
        root = self._job_folder or edlz_home() / "jobs" / job.name
        self._run = root / f"ps-{self._partition}" / job.run
        try:
            self._run.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"cannot use {self._run}: {reason}", "set --job_dir to a writable folder"
            ) from error

    def names(self) -> tuple[SnapshotName, ...]:
        """Return the names of all good snapshots, as the folder is now."""
        if self._run is None:
            return ()
        lives = [life for life in self._run.iterdir() if life.is_dir()]
        # A folder's mtime changes with every file that appears or goes, so reading them all again is rare;
        # our own changes may follow each other within one tick of that clock, so they reset it.
        stamp = (*sorted(life.stat().st_mtime_ns for life in lives), len(self._damaged))
        if stamp != self._listed_at:
            heads = (path for life in lives for path in life.glob("*.json") if path not in self._damaged)
            found = {_name_of(path) for path in heads}
            self._listed, self._listed_at = tuple(sorted(name for name in found if name is not None)), stamp
        return self._listed

    def write(self, state: State, life: Identity | None) -> Path:
        """Make a snapshot durable in the folder of this life (None: the base); return its metadata file.

        Raises
        ------
        OSError
            If the disk is full or not writable; nothing is left of it.
        """
        return self.publish(*self.prepare(state, life))

    def prepare(self, state: State, life: Identity | None) -> tuple[Path, Path]:
        """Write the files under temporary names; `publish` makes them a snapshot, `discard` forgets them."""
        folder = self._life(life)
        folder.mkdir(exist_ok=True)
        stem = f"{state.era[0]}.{state.era[1]}-{state.version}"
        vectors: dict[str, npt.NDArray[np.generic]] = {
            "dense": state.dense,
            "state": state.state,
            "counters": state.counters,
            "counts": state.counts,
            **{f"slot.{name}": slot for name, slot in state.slots.items()},
        }
        body, head = folder / f".{stem}.safetensors.tmp", folder / f".{stem}.json.tmp"
        try:
            _save(vectors, body)
            head.write_bytes(msgspec.json.encode(self._describe(state, body)))
            for path in (body, head):
                _fsync(path)
        except OSError:
            self.discard(body, head)
            raise
        return body, head

    def _describe(self, state: State, body: Path) -> _Metadata:
        return _Metadata(
            format=FORMAT,
            sha256=_sha256(body),
            plan_hash=state.plan_hash,
            base_digest=state.base_digest,
            partition=state.partition,
            partitions=state.partitions,
            layout=state.layout,
            optimizer=state.optimizer,
            era=state.era,
            version=state.version,
            iterations=state.iterations,
            ledger=state.ledger,
            slots=tuple(state.slots),
        )

    def publish(self, body: Path, head: Path) -> Path:
        """Rename what `prepare` wrote: the vectors first, then the metadata that makes them valid."""
        final = [path.with_name(path.name[1:].removesuffix(".tmp")) for path in (body, head)]
        for path, name in zip((body, head), final, strict=True):
            os.replace(path, name)
        self._listed_at = ()
        _fsync(body.parent)
        _fsync(self._folder)
        return final[1]

    def discard(self, body: Path, head: Path) -> None:
        for path in (body, head):
            path.unlink(missing_ok=True)

    def load(self, name: SnapshotName) -> State:
        """Read a snapshot.

        Raises
        ------
        DataError
            If no copy of it is whole; the damaged ones leave the list.
        """
        reasons = []
        for head in self._copies(name):
            try:
                return _read(head)
            except (
                OSError,
                ValueError,
                KeyError,
                safetensors.SafetensorError,
                msgspec.MsgspecError,
            ) as error:
                self._damaged.add(head)
                reasons.append(f"{head.name}: {error}")
        reason = "; ".join(reasons) or "it is gone"
        raise DataError(f"snapshot {name} of {self._folder} cannot be read: {reason}")

    def link(self, name: SnapshotName, life: Identity) -> None:
        """Make a snapshot of an older life this life's own as well."""
        folder = self._life(life)
        folder.mkdir(exist_ok=True)
        for head in self._copies(name):
            if head.parent in (folder, self._life(None)):
                return
            for path in (head.with_suffix(".safetensors"), head):
                (folder / path.name).unlink(missing_ok=True)
                os.link(path, folder / path.name)
            self._listed_at = ()
            _fsync(folder)
            return

    def drop(self, name: SnapshotName, life: Identity) -> None:
        """Unlink a snapshot from the folders of this life and of older ones; the base stays."""
        for head in self._copies(name):
            owner = _identity(head.parent.name)
            if owner is not None and owner <= life:
                for path in (head, head.with_suffix(".safetensors")):
                    path.unlink(missing_ok=True)
        self._listed_at = ()

    def _life(self, life: Identity | None) -> Path:
        return self._folder / (BASE_FOLDER if life is None else f"{life[0]}.{life[1]}")

    def _copies(self, name: SnapshotName) -> list[Path]:
        (term, n), version = name
        found = self._folder.glob(f"*/{term}.{n}-{version}.json")
        return [path for path in sorted(found) if path not in self._damaged]


def _save(vectors: Mapping[str, npt.NDArray[np.generic]], path: Path) -> None:
    """Write vectors as safetensors; its own error for a full disk becomes the usual one."""
    try:
        safetensors.numpy.save_file({name: np.ascontiguousarray(v) for name, v in vectors.items()}, path)
    except safetensors.SafetensorError as error:
        number = errno.ENOSPC if f"os error {errno.ENOSPC}" in str(error) else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def _read(head: Path) -> State:
    metadata = msgspec.json.decode(head.read_bytes(), type=_Metadata)
    if metadata.format != FORMAT:
        raise ValueError(f"its format {metadata.format} is not the one that this edlz reads, {FORMAT}")
    body = head.with_suffix(".safetensors")
    if _sha256(body) != metadata.sha256:
        raise ValueError("its checksum is wrong")
    vectors = safetensors.numpy.load_file(body)
    return State(
        plan_hash=metadata.plan_hash,
        base_digest=metadata.base_digest,
        partition=metadata.partition,
        partitions=metadata.partitions,
        layout=metadata.layout,
        optimizer=metadata.optimizer,
        era=metadata.era,
        version=metadata.version,
        iterations=metadata.iterations,
        ledger=metadata.ledger,
        counts=vectors["counts"],
        dense=vectors["dense"],
        state=vectors["state"],
        counters=vectors["counters"],
        slots={name: vectors[f"slot.{name}"] for name in metadata.slots},
    )


def _name_of(head: Path) -> SnapshotName | None:
    era, _, version = head.stem.rpartition("-")
    identity = _identity(era)
    return (identity, int(version)) if identity is not None and version.isdigit() else None


def _identity(text: str) -> Identity | None:
    term, _, n = text.partition(".")
    return (int(term), int(n)) if term.isdigit() and n.isdigit() else None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

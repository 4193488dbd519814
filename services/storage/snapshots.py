"""A partition's snapshots on disk: written whole or not at all, checked when read.

A snapshot is two files in a life's folder, `<term>.<n>-<version>.safetensors` and `.json` beside it
(state_file says what is in them).  The second is renamed last and makes the snapshot valid.  Every file
appears by write to a temporary name, fsync, rename, fsync of the folder.  A life writes in its own folder
and links what it restores into it, so a stalled process that wakes up later cannot delete its successor's
files (PROTOCOL: section 6).  A snapshot that turns out to be damaged is set aside under another name, so
that the next life does not try it again.

    <job folder>/ps-<i>/<run>/base/0.0-<version>.safetensors
    <job folder>/ps-<i>/<run>/<term>.<n>/<term>.<n>-<version>.safetensors

The base is what the job began from, always of era 0.0: the state before training (version 0), or a
checkpoint's.  It is never dropped.

A partition's part of a complete checkpoint is a snapshot too (CompleteCheckpoints).  One that is loaded is linked
into the life's folder first, where the disk can do that, so that pruning does not take it away.
"""

import itertools
import logging
import os
import secrets
from pathlib import Path

from edlz.services.configuration.job_config import JobConfig, edlz_home
from edlz.services.errors import ConfigError, DataError
from edlz.services.process.descriptors import spared
from edlz.services.protocol.messages import NO_IDENTITY, Ends, Identity, Job, SnapshotName
from edlz.services.storage.blocks import DamagedFile, ForeignFormat
from edlz.services.storage.checkpoint_reading import read_partition
from edlz.services.storage.checkpoint_records import MANIFEST, is_listed
from edlz.services.storage.complete_checkpoints import CompleteCheckpoints, OwnPart
from edlz.services.storage.durable import fsync_path, make_folder
from edlz.services.storage.state import State
from edlz.services.storage.state_file import read_state, write_state
from edlz.services.storage.state_head import body_of, read_head

__all__ = ["SnapshotFolder", "snapshot_heads"]

BASE_FOLDER = "base"
DAMAGED_SUFFIX = ".damaged"
MOST_LISTED = 8  # checkpoints: the newest ones, of thousands that may be kept

logger = logging.getLogger(__name__)


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
        self._complete: CompleteCheckpoints | None = None
        self._partitions = 1
        self._tag = secrets.token_hex(4)  # two processes never write to one temporary file,
        self._writes = itertools.count()  # and no two writes of one
        self._damaged: set[Path] = set()
        self._listed: tuple[SnapshotName, ...] = ()
        self._unusable: set[str] = set()  # the stems of what was found damaged, in this life or before
        self._listed_at: tuple[int, ...] = ()

    @property
    def _folder(self) -> Path:
        assert self._run is not None, "no job yet"
        return self._run

    @property
    def place(self) -> Path:
        """The folder."""
        return self._folder

    def open(self, job: Job) -> None:
        """Find or make the folder of this run of the job.

        Raises
        ------
        ConfigError
            If it cannot be made.
        """
        root = self._job_folder or edlz_home() / "jobs" / job.name
        self._partitions = job.partitions
        self._run = root / f"ps-{self._partition}" / job.run
        try:
            make_folder(self._run)
            for (
                life
            ) in self._lives():  # the life before may have been killed between a name and its durability
                fsync_path(life)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"cannot use {self._run}: {reason}", "set --job_dir to a writable folder"
            ) from error

        config = JobConfig.from_record(job.config)
        self._complete = CompleteCheckpoints(config.checkpoint_directory, job, self._partition)
        self.refresh()

    @spared
    def refresh(self) -> None:
        """Find out anew which checkpoints there are."""
        if self._complete is not None:
            self._complete.refresh()

    def checkpoints(self, ends: Ends) -> tuple[SnapshotName, ...]:
        """Return the names of this partition's parts of complete checkpoints that it can go back to.

        Only those of this run in which exactly these tasks are ended, and that were not found damaged.
        """
        if self._complete is None:
            return ()
        self.names()  # what is damaged is found by the same look
        usable = [name for name in self._complete.parts(ends) if _stem(name) not in self._unusable]
        return tuple(sorted(usable, key=lambda name: (name[1], name[0]))[-MOST_LISTED:])

    @spared
    def names(self) -> tuple[SnapshotName, ...]:
        """Return the names of all good snapshots, as the folder is now."""
        if self._run is None:
            return ()
        lives = self._lives()
        # A folder's mtime changes with every file that appears or goes, so reading them all again is rare;
        # our own changes may follow each other within one tick of that clock, so they reset it.
        stamp = (*sorted(life.stat().st_mtime_ns for life in lives), len(self._damaged))
        if stamp != self._listed_at:
            heads = (path for life in lives for path in life.glob("*.json") if path not in self._damaged)
            found = {_name_of(path) for path in heads}
            self._listed, self._listed_at = tuple(sorted(name for name in found if name is not None)), stamp
            marks = (path.name for life in lives for path in life.glob(f"*.json{DAMAGED_SUFFIX}"))
            self._unusable = {mark.removesuffix(f".json{DAMAGED_SUFFIX}") for mark in marks}
        return self._listed

    def write(self, state: State, life: Identity | None) -> Path:
        """Make a snapshot durable in the folder of this life (None: the base); return its metadata file.

        Closes the state as `prepare` does.

        Raises
        ------
        OSError
            If the disk is full or not writable; nothing is left of it.
        """
        return self.publish(*self.prepare(state, life))

    def prepare(self, state: State, life: Identity | None) -> tuple[Path, Path]:
        """Write the files under temporary names; `publish` makes them a snapshot, `discard` forgets them.

        Whatever comes of it, the state is closed: its vectors stay, its tables' rows are gone.

        Raises
        ------
        OSError
            As in `write`.
        """
        stem = _stem(state.name)
        folder = self._life(life)
        tag = f"{self._tag}{next(self._writes)}"
        body, head = (folder / f".{stem}.{kind}.{tag}.tmp" for kind in ("safetensors", "json"))
        try:
            folder.mkdir(exist_ok=True)
            if life is not None:
                self._remove_leftovers(life)
            write_state(state, body, head)
        except BaseException:
            self.discard(body, head)
            raise
        finally:
            state.close()
        return body, head

    def publish(self, body: Path, head: Path) -> Path:
        """Rename what `prepare` wrote: the tensors first, then the metadata that makes them valid.

        Raises
        ------
        OSError
            If the names cannot be made, or not made durable; the snapshot is not in the list then.
        """
        final = [path.with_name(path.name[1:].rsplit(".", 2)[0]) for path in (body, head)]  # .NAME.TAG.tmp
        was_there = final[1].exists()  # of the same name, hence of the same content
        self._listed_at = ()
        try:
            for path, name in zip((body, head), final, strict=True):
                os.replace(path, name)
            fsync_path(body.parent)
            fsync_path(self._folder)
        except OSError:
            if not was_there:
                self._withdraw(final[1])
            raise
        self._damaged.discard(final[1])
        return final[1]

    def _withdraw(self, head: Path) -> None:
        """Take a snapshot off the list that may be gone after a power failure."""
        self._damaged.add(head)  # even if it cannot be removed
        for path in (head, head.with_suffix(".safetensors")):
            path.unlink(missing_ok=True)

    def discard(self, body: Path, head: Path) -> None:
        for path in (body, head):
            path.unlink(missing_ok=True)

    def load(self, name: SnapshotName, life: Identity | None = None, ends: Ends = ()) -> State:
        """Read a snapshot; the rows of its tables are read, and checked, as they are asked for.

        Parameters
        ----------
        name : SnapshotName
        life : Identity, optional
            Who reads it: it takes a part of a complete checkpoint into its folder, if it has no such snapshot.
        ends : tuple of (int, int), optional
            The tasks that have been ended, as for `checkpoints`.

        Raises
        ------
        DataError
            If no copy of it is whole; the damaged ones leave the list.  The rows of the state's tables
            raise it too, later: then what was made of them must be thrown away.
        """
        reasons = []
        own = self._complete.parts(ends).get(name) if self._complete is not None else None
        if own is not None and life is not None and not self._copies(name):  # noqa: SIM102
            if not self._take(name, own, life):
                return self._load_in_place(name, own, life)
        for head in self._copies(name):
            try:
                return read_state(head, lambda error, head=head: self._set_aside(head, error))  # type: ignore[misc]
            except DamagedFile as error:
                self._set_aside(head, error)
                reasons.append(f"{head.name}: {error.reason}")
            except OSError as error:
                self._damaged.add(head)
                reasons.append(f"{head.name}: {error.strerror or error}")
        reason = "; ".join(reasons) or "it is gone"
        raise DataError(f"snapshot {name} of {self._folder} cannot be read: {reason}")

    def _take(self, name: SnapshotName, own: OwnPart, life: Identity) -> bool:
        """Link a part of a checkpoint into the folder of a life as its snapshot; whether that can be done.

        Raises
        ------
        DataError
            If the part is not the one that its manifest lists.
        """
        folder, stem = self._life(life), _stem(name)
        tag = f"{self._tag}{next(self._writes)}"
        body, head = (folder / f".{stem}.{kind}.{tag}.tmp" for kind in ("safetensors", "json"))
        try:
            make_folder(folder)
            os.link(body_of(own.head), body)
            os.link(own.head, head)
            self._check_listed(own, head)
            self.publish(body, head)
        except DamagedFile as error:
            self._check_there(own)
            self._note_damage(name, life, error)
            raise
        except OSError as error:  # as between two file systems, or two mounts of one
            logger.info("%s cannot be linked: %s", own.head, error.strerror or error)
            return False
        finally:
            self.discard(body, head)
        return True

    def _load_in_place(self, name: SnapshotName, own: OwnPart, life: Identity) -> State:
        """Read a part of a checkpoint where it lies."""
        try:
            self._check_listed(own, own.head)
            return read_state(own.head, lambda error: self._note_damage(name, life, error))
        except DamagedFile as error:
            self._check_there(own)
            self._note_damage(name, life, error)
            raise
        except OSError as error:
            self._check_there(own)
            raise DataError(f"{own.head} cannot be read: {error.strerror or error}") from error

    def _check_there(self, own: OwnPart) -> None:
        """Tell a part whose checkpoint was pruned since it was listed, its manifest first, from a damaged one.

        Raises
        ------
        DataError
            If the checkpoint is there no more; it leaves the list.
        """
        try:
            (own.head.parent / MANIFEST).stat()
        except FileNotFoundError as error:
            self.refresh()
            raise DataError(f"{own.head} is gone: its checkpoint was pruned meanwhile") from error
        except OSError:  # that it cannot be looked at does not say that it is gone
            return

    @staticmethod
    def _check_listed(own: OwnPart, head: Path) -> None:
        if not is_listed(own.part, *read_head(head)):
            raise DamagedFile(own.head, "checksum: not the file that the manifest lists")

    def _note_damage(self, name: SnapshotName, life: Identity, error: DamagedFile) -> None:
        """Keep the next life from trying a damaged part again; the checkpoint itself stays as it is."""
        logger.warning("checkpoint's part %s is not used: %s", error.path, error.reason)
        self._listed_at = ()
        try:
            folder = self._life(life)
            make_folder(folder)
            (folder / f"{_stem(name)}.json{DAMAGED_SUFFIX}").touch()
        except OSError as cause:
            logger.warning("%s cannot be noted as damaged: %s", error.path, cause.strerror or cause)

    def load_checkpoint(self, folder: str) -> State:
        """Read this partition's share of a checkpoint; its tables' rows as in `load`.

        Raises
        ------
        DataError
            If it is damaged.
        """
        try:
            return read_partition(Path(folder), self._partition, self._partitions)
        except OSError as error:
            raise DataError(f"checkpoint {folder} cannot be read: {error.strerror or error}") from error

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
            fsync_path(folder)
            fsync_path(self._folder)
            return

    def drop(self, name: SnapshotName, life: Identity) -> None:
        """Unlink a snapshot from the folders of this life and of older ones; the base stays."""
        if name[0] == NO_IDENTITY:
            return
        for head in self._copies(name):
            owner = _identity(head.parent.name)
            if owner is not None and owner <= life:
                for path in (head, head.with_suffix(".safetensors")):
                    path.unlink(missing_ok=True)
        self._listed_at = ()

    def _lives(self) -> list[Path]:
        return [life for life in self._folder.iterdir() if life.is_dir()]

    def _life(self, life: Identity | None) -> Path:
        return self._folder / (BASE_FOLDER if life is None else f"{life[0]}.{life[1]}")

    @spared
    def _copies(self, name: SnapshotName) -> list[Path]:
        found = self._folder.glob(f"*/{_stem(name)}.json")
        return [path for path in sorted(found) if path not in self._damaged]

    def _set_aside(self, head: Path, error: DamagedFile) -> None:
        """Take a damaged snapshot out of the list for this life and the next; its files stay, to be seen."""
        logger.warning("snapshot %s is not used: %s", head, error.reason)
        self._damaged.add(head)
        if not isinstance(error, ForeignFormat):
            try:
                os.replace(head, head.with_name(head.name + DAMAGED_SUFFIX))
            except OSError as cause:
                logger.warning("cannot rename %s: %s", head, cause.strerror or cause)

    @spared
    def _remove_leftovers(self, life: Identity) -> None:
        """Remove what older lives, killed while they wrote, left half-written."""
        for path in self._folder.glob("*/.*.tmp"):
            owner = _identity(path.parent.name)
            if owner is None or owner < life:
                path.unlink(missing_ok=True)


def _stem(name: SnapshotName) -> str:
    (term, n), version = name
    return f"{term}.{n}-{version}"


def snapshot_heads(job_folder: Path, partition: int, run: str) -> list[Path]:
    """Return the heads of all snapshots of a partition that lie in its job's folder."""
    found = (job_folder / f"ps-{partition}" / run).glob("*/*.json")
    return sorted(path for path in found if _name_of(path) is not None)


def _name_of(head: Path) -> SnapshotName | None:
    era, _, version = head.stem.rpartition("-")
    identity = _identity(era)
    return (identity, int(version)) if identity is not None and version.isdigit() else None


def _identity(text: str) -> Identity | None:
    term, _, n = text.partition(".")
    return (int(term), int(n)) if term.isdigit() and n.isdigit() else None

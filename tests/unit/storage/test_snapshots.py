"""Snapshots on a real disk: whole or not at all."""

import errno
import os
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from edlz.services.errors import ConfigError, DataError
from edlz.services.storage import snapshots
from edlz.services.storage.checkpoint_writing import Finished, write_manifest, write_part
from edlz.services.storage.snapshots import SnapshotFolder
from edlz.services.storage.state import MemoryRows, State
from tests import builders
from tests.states import assert_same_state, make_cut, make_state

PLAN = builders.plan()
JOB = builders.job(PLAN)


def read_all(state: State) -> None:
    for rows in state.rows:
        MemoryRows.of(rows)


@pytest.fixture
def folder(tmp_path: Path) -> SnapshotFolder:
    folder = SnapshotFolder(0, tmp_path)
    folder.open(JOB)
    return folder


def test_a_snapshot_comes_back_bit_by_bit(folder: SnapshotFolder) -> None:
    state = make_state()
    folder.write(state, (1, 1))
    assert folder.names() == (((1, 2), 7),)
    loaded = folder.load(state.name)
    assert_same_state(state, loaded)
    loaded.close()


def test_what_was_not_published_is_not_there(folder: SnapshotFolder) -> None:
    files = folder.prepare(make_state(), (1, 1))
    assert folder.names() == ()
    folder.discard(*files)
    assert not any(path.exists() for path in files)


def test_two_snapshots_of_one_version_do_not_meet_on_their_way(folder: SnapshotFolder) -> None:
    """The seal is written as soon as the thread is free: before a recovery snapshot has been published."""
    snapshot, seal = make_state(), make_state()
    first = folder.prepare(snapshot, (1, 1))
    second = folder.prepare(seal, (1, 1))
    folder.publish(*first)
    assert folder.publish(*second).exists()
    assert_same_state(seal, folder.load(seal.name))


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "metadata"])
def test_a_damaged_snapshot_is_named_and_leaves_the_list(
    folder: SnapshotFolder, tmp_path: Path, damage: str
) -> None:
    head = folder.write(make_state(), (1, 1))
    body = head.with_suffix(".safetensors")
    content = body.read_bytes()
    if damage == "flip":
        body.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    elif damage == "truncate":
        body.write_bytes(content[:100])
    elif damage == "remove":
        body.unlink()
    else:
        head.write_bytes(head.read_bytes()[:50])
    with pytest.raises(DataError, match=r"1\.2-7\.(json|safetensors)"):
        read_all(folder.load(((1, 2), 7)))
    assert folder.names() == ()
    next_life = SnapshotFolder(0, tmp_path)
    next_life.open(JOB)
    assert next_life.names() == ()  # or it would fail on it again, for ever


def test_one_of_an_older_edlz_is_named_and_left_alone(folder: SnapshotFolder, tmp_path: Path) -> None:
    head = folder.write(make_state(), (1, 1))
    head.write_text('{"format":1,"sha256":"0"}')
    with pytest.raises(DataError, match="written by an older edlz"):
        folder.load(((1, 2), 7))
    assert head.exists()


@pytest.mark.parametrize("version", [0, 700])
def test_the_base_is_never_dropped(folder: SnapshotFolder, version: int) -> None:
    """Of version 700: the checkpoint that the job began from."""
    base = make_state(era=(0, 0), version=version)
    folder.write(base, None)
    folder.link(base.name, (1, 1))
    folder.drop(base.name, (99, 99))
    assert folder.names() == (base.name,)
    assert_same_state(base, folder.load(base.name))


class Image(MemoryRows):
    """Rows that tell whether they were closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("fails", [False, True])
def test_the_images_of_tables_are_closed_whatever_happens(
    folder: SnapshotFolder, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    rows = make_state().rows[0]
    assert isinstance(rows, MemoryRows)
    image = Image(rows._ids, rows._rows)
    state = make_state(tables=((4, "Adagrad", 0),), rows=(image,))
    if fails:
        monkeypatch.setattr(os, "fsync", lambda descriptor: os.fstat(-1))
        with pytest.raises(OSError):
            folder.prepare(state, (1, 1))
    else:
        folder.prepare(state, (1, 1))
    assert image.is_closed


def test_what_a_killed_life_left_half_written_goes(folder: SnapshotFolder, tmp_path: Path) -> None:
    killed = SnapshotFolder(0, tmp_path)
    killed.open(JOB)
    ours = killed.prepare(make_state(), (1, 1))
    later = killed.prepare(make_state(), (3, 1))
    folder.write(make_state(version=8), (2, 1))
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in later)  # a later life's are not ours to remove
    with pytest.raises(FileNotFoundError):  # had it only been stalled: its snapshot fails, nothing else
        killed.publish(*ours)


def test_a_checkpoint_is_read_for_the_partition_and_the_job(tmp_path: Path) -> None:
    parts = [write_part(tmp_path, s, version=7, number=7, run="r", tag="t") for s in make_cut(3)]
    finished = Finished(job="j", run="r", mode="sync", number=7, epoch=1, minibatches=1)
    write_manifest(tmp_path, 7, [p for p in parts if p is not None], finished, tag="t")
    folder = SnapshotFolder(1, tmp_path)
    folder.open(msgspec.structs.replace(JOB, partitions=2))
    state = folder.load_checkpoint(str(tmp_path / "version-7"))
    assert (state.partition, state.partitions, state.version) == (1, 2, 7)
    folder.write(state, None)  # rows go from file to file
    assert folder.names() == (((0, 0), 7),)
    with pytest.raises(DataError, match="version-8"):
        folder.load_checkpoint(str(tmp_path / "version-8"))


class FailingFolder:
    """fsync of a folder fails from some call on, as on a disk that is going."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, after: int = 0) -> None:
        self._left, self._real = after, module.fsync_path
        monkeypatch.setattr(module, "fsync_path", self)

    def __call__(self, path: Path) -> None:
        if not self._left:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._left -= 1
        self._real(path)


@pytest.mark.parametrize("after", [0, 1], ids=["the life's folder", "the run's folder"])
def test_a_snapshot_whose_name_is_not_durable_is_not_in_the_list(
    folder: SnapshotFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    older = make_state(version=6)
    folder.write(older, (1, 1))
    with monkeypatch.context() as patch:
        FailingFolder(patch, snapshots, after)
        with pytest.raises(OSError, match="Input/output"):
            folder.write(make_state(), (1, 1))
    assert folder.names() == (older.name,)
    assert not list(tmp_path.rglob("*-7.*"))
    folder.write(make_state(), (1, 1))  # the disk is well again
    assert folder.names() == (older.name, make_state().name)


def test_one_that_was_durable_before_stays_in_the_list(
    folder: SnapshotFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seal has the name of the recovery snapshot of the same version."""
    folder.write(make_state(), (1, 1))
    FailingFolder(monkeypatch, snapshots)
    with pytest.raises(OSError, match="Input/output"):
        folder.write(make_state(), (1, 1))
    assert folder.names() == (make_state().name,)


def test_what_the_life_before_has_named_is_durable_before_it_is_listed(
    folder: SnapshotFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been killed before it could make the name durable, and so before it told anybody."""
    folder.write(make_state(), (1, 1))
    FailingFolder(monkeypatch, snapshots)
    with pytest.raises(ConfigError, match="Input/output"):
        SnapshotFolder(0, tmp_path).open(JOB)


def test_an_older_life_cannot_take_a_snapshot_from_a_later_one(folder: SnapshotFolder) -> None:
    state = make_state()
    folder.write(state, (1, 1))
    folder.link(state.name, (2, 1))
    folder.drop(state.name, (1, 1))
    assert folder.names() == (state.name,)
    assert folder.load(state.name).version == state.version
    folder.drop(state.name, (2, 1))
    assert folder.names() == ()


def test_the_list_is_of_now_when_another_process_writes(folder: SnapshotFolder, tmp_path: Path) -> None:
    assert folder.names() == ()
    other = SnapshotFolder(0, tmp_path)
    other.open(JOB)
    other.write(make_state(), (1, 1))
    assert folder.names() == (((1, 2), 7),)


def test_a_full_disk_is_an_os_error_and_leaves_nothing(
    folder: SnapshotFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def no_room(descriptor: int, data: memoryview) -> int:
        if len(data) < 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", no_room)
    with pytest.raises(OSError, match="No space left"):
        folder.write(make_state(), (1, 1))
    assert folder.names() == ()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

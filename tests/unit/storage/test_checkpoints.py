"""Checkpoints on a real disk: valid or named, one cut or none, under any number of partitions."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.services.errors import DataError, LocalProtocolError
from edlz.services.protocol.layout import slice_bounds
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.storage import blocks, checkpoint_writing, repartition
from edlz.services.storage.blocks import DamagedFile
from edlz.services.storage.checkpoint_reading import read_partition
from edlz.services.storage.checkpoint_records import version_folder
from edlz.services.storage.checkpoint_writing import next_run_number, write_part
from edlz.services.storage.pruning import prune
from edlz.services.storage.state import MemoryRows, State
from edlz.services.storage.versions import NoCheckpoint, list_versions, newest_good, verify
from tests.states import (
    assert_same_state,
    finish_version,
    make_cut,
    make_state,
    merged,
    save,
    write_parts,
)


@pytest.fixture(autouse=True)
def _small_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small state has many blocks, and a block has rows of several partitions."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 512)
    monkeypatch.setattr(repartition, "BLOCK_BYTES", 256)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no machine crashes here


def read_all(folder: Path, partitions: int) -> list[State]:
    return [read_partition(folder, i, partitions) for i in range(partitions)]


def close_all(states: Sequence[State]) -> None:
    for state in states:
        state.close()


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


# -- writing and reading


def test_the_same_number_of_partitions_gets_what_it_wrote(tmp_path: Path) -> None:
    cut = make_cut(3)
    folder = version_folder(tmp_path, 7)
    finish_version(tmp_path, write_parts(tmp_path, cut), 7)
    for ours, theirs in zip(cut, read_all(folder, 3), strict=True):
        assert_same_state(ours, theirs, but=("era", "base_digest"))
        assert (theirs.era, theirs.base_digest) == ((0, 0), "")
        theirs.close()


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.integers(1, 7), min_size=2, max_size=4),
    seed=st.integers(0, 2**32),
    shapes=st.lists(st.tuples(st.integers(1, 60)), max_size=3),
    rows=st.lists(st.integers(0, 120), max_size=2),
)
def test_any_number_of_partitions_after_any_other(
    tmp_path_factory: pytest.TempPathFactory,
    numbers: list[int],
    seed: int,
    shapes: list[tuple[int]],
    rows: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    tables = [(3, "Adagrad", count) for count in rows]
    cut = make_cut(numbers[0], seed=seed, shapes=shapes, tables=tables)
    expected = merged(cut)
    for step, count in enumerate(numbers):
        direct = make_cut(count, seed=seed, shapes=shapes, tables=tables)
        for ours, theirs in zip(direct, cut, strict=True):
            assert_same_state(ours, theirs, but=("era", "base_digest", "rows"))
            assert [set(r.ids.tolist()) for r in ours.rows] == [set(r.ids.tolist()) for r in theirs.rows]
        assert merged(cut) == expected
        # The rows of the states lie in files of the version before.
        finish_version(folder / str(step), write_parts(folder / str(step), cut), 7)
        following = numbers[min(step + 1, len(numbers) - 1)]
        cut = read_all(version_folder(folder / str(step), 7), following)
    assert merged(cut) == expected
    close_all(cut)


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_share_of_the_rows_is_read_from_anywhere(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    finish_version(folder, write_parts(folder, make_cut(3, tables=((4, "Adam", 400),))), 7)
    rows = read_partition(version_folder(folder, 7), 1, 2).rows[0]
    expected = MemoryRows.of(rows)
    for _ in range(4):
        first = data.draw(st.integers(0, rows.row_count))
        count = data.draw(st.integers(0, rows.row_count - first))
        ours, theirs = np.empty(count * 12, np.float32), np.empty(count * 12, np.float32)
        rows.read(first, count, ours)
        expected.read(first, count, theirs)
        assert ours.tobytes() == theirs.tobytes()
    with pytest.raises(ValueError, match="do not exist"):
        rows.read(1, rows.row_count, np.empty(rows.row_count * 12, np.float32))
    rows.close()


def test_parts_of_two_cuts_are_refused_by_the_writer(tmp_path: Path) -> None:
    one, other = make_cut(2)
    later = msgspec.structs.replace(other, ledger=LedgerRecord(finished=(0, 4), minibatches=12))
    with pytest.raises(LocalProtocolError, match="parts 0 and 1 differ in ledger"):
        finish_version(tmp_path, write_parts(tmp_path, [one, later]), 7)
    with pytest.raises(LocalProtocolError, match="not one part of each partition"):
        finish_version(tmp_path, write_parts(tmp_path, [one]), 7)
    assert [info.state for info in list_versions(tmp_path)] == ["incomplete"]


def test_a_folder_that_is_not_shared_is_named(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    one, other = make_cut(2)
    parts = [*write_parts(here, [one]), *write_parts(there, [other])]
    with pytest.raises(DataError, match=r"part 1 of version-7 .*missing") as raised:
        finish_version(here, parts, 7)
    assert "one folder that the master and all partitions share" in raised.value.help


def test_counts_that_differ_are_refused_by_the_reader(tmp_path: Path) -> None:
    one, other = make_cut(2)
    strange = msgspec.structs.replace(other, counts=other.counts + np.int32(1))
    finish_version(tmp_path, write_parts(tmp_path, [one, strange]), 7)
    with pytest.raises(DataError, match="parts 0 and 1 are not of one checkpoint"):
        read_partition(version_folder(tmp_path, 7), 0, 1)


# -- what already lies there


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_checkpoint_again_changes_nothing_and_is_reported_again(tmp_path: Path) -> None:
    parts = write_parts(tmp_path, make_cut(2))
    finish_version(tmp_path, parts, 7)
    before = contents(version_folder(tmp_path, 7))
    other_order = make_cut(2)
    assert write_parts(tmp_path, other_order) == parts
    assert contents(version_folder(tmp_path, 7)) == before


def test_a_damaged_part_of_the_same_checkpoint_is_written_again(tmp_path: Path) -> None:
    folder = save(tmp_path, partitions=2)
    (folder / "part-1-of-2.safetensors").write_bytes(b"short")
    parts = write_parts(tmp_path, make_cut(2))
    assert list_versions(tmp_path)[0].state == "incomplete"
    finish_version(tmp_path, parts, 7)
    assert verify(folder) == ()


@pytest.mark.parametrize("again", [{"run": "s"}, {"number": 9}], ids=["run", "number"])
def test_another_checkpoint_of_this_version_replaces_it_whole(
    tmp_path: Path, again: dict[str, object]
) -> None:
    folder = save(tmp_path, partitions=2)
    first, second = make_cut(2, seed=1)
    write_parts(tmp_path, [first], **again)  # type: ignore[arg-type]
    assert list_versions(tmp_path)[0].state == "incomplete"
    with pytest.raises(NoCheckpoint):
        newest_good(tmp_path)
    parts = write_parts(tmp_path, [first, second], **again)  # type: ignore[arg-type]
    finish_version(tmp_path, parts, 7, **again)  # type: ignore[arg-type]
    states = read_all(folder, 2)
    assert merged(states) == merged(make_cut(2, seed=1))
    close_all(states)


def test_other_partitions_leave_no_part_of_theirs_in_it(tmp_path: Path) -> None:
    folder = save(tmp_path, partitions=3)
    finish_version(tmp_path, write_parts(tmp_path, make_cut(2, seed=1), run="s"), 7, run="s")
    assert verify(folder) == ()
    states = read_all(folder, 1)
    assert merged(states) == merged(make_cut(2, seed=1))
    close_all(states)


def test_the_same_checkpoint_of_other_partitions_is_good_until_it_is_replaced(tmp_path: Path) -> None:
    """Members that have changed write the state that they stand at once more: it must be there all the while."""
    folder = save(tmp_path, partitions=3)
    parts = []
    for state in make_cut(2):
        parts += write_parts(tmp_path, [state])
        assert verify(newest_good(tmp_path)) == ()
    finish_version(tmp_path, parts, 7)
    assert [info.partitions for info in list_versions(tmp_path)] == [2]
    states = read_all(folder, 2)
    assert merged(states) == merged(make_cut(2))
    close_all(states)


def test_a_part_of_an_earlier_checkpoint_comes_too_late(tmp_path: Path) -> None:
    cut = make_cut(1)
    finish_version(tmp_path, write_parts(tmp_path, cut, number=3), 7, number=3)
    before = contents(version_folder(tmp_path, 7))
    assert write_part(tmp_path, make_state(seed=1), version=7, number=2, run="r", tag="z") is None
    assert contents(version_folder(tmp_path, 7)) == before


@pytest.mark.parametrize("run", ["r", "s"])
def test_a_part_whose_version_was_finished_meanwhile_comes_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    """A stalled process: while it writes, its successor's checkpoint is finished."""
    real = checkpoint_writing.write_state

    def stall(state: State, body: Path, head: Path) -> object:
        monkeypatch.setattr(checkpoint_writing, "write_state", real)
        finish_version(tmp_path, write_parts(tmp_path, make_cut(1), number=4), 7, number=4)
        return real(state, body, head)

    monkeypatch.setattr(checkpoint_writing, "write_state", stall)
    assert write_part(tmp_path, make_state(seed=1), version=7, number=2, run=run, tag="z") is None
    read: list[int] = []
    assert verify(version_folder(tmp_path, 7), read.append) == ()
    bodies = [path for path in version_folder(tmp_path, 7).iterdir() if path.suffix == ".safetensors"]
    assert sum(read) == sum(path.stat().st_size for path in bodies) > 0
    states = read_all(version_folder(tmp_path, 7), 1)
    assert merged(states) == merged(make_cut(1))
    close_all(states)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_part_of_others_stays_while_the_version_is_finished_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member alone has sealed the job's last state, and the two that it is now write theirs."""
    real = checkpoint_writing.write_state

    def stall(state: State, body: Path, head: Path) -> object:
        monkeypatch.setattr(checkpoint_writing, "write_state", real)
        written = real(state, body, head)
        save(tmp_path)
        prune(tmp_path, 1, finished=7)
        return written

    monkeypatch.setattr(checkpoint_writing, "write_state", stall)
    parts = write_parts(tmp_path, make_cut(2))
    finish_version(tmp_path, parts, 7)
    assert verify(version_folder(tmp_path, 7)) == ()


def test_a_part_that_was_taken_for_a_leftover_is_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same state is written a second time, by whoever has taken a member's place."""
    real = os.replace

    def stall(*places: Path) -> None:
        monkeypatch.setattr(os, "replace", real)
        save(tmp_path)
        prune(tmp_path, 1, finished=7)
        real(*places)

    monkeypatch.setattr(os, "replace", stall)
    [state] = make_cut(1)
    part = write_part(tmp_path, state, version=7, number=7, run="r", tag="late")
    assert verify(version_folder(tmp_path, 7)) == ()
    assert [part] == write_parts(tmp_path, make_cut(1))


def test_a_part_that_slips_in_later_makes_the_version_damaged(tmp_path: Path) -> None:
    folder = save(tmp_path)
    other = save(tmp_path / "elsewhere", seed=1)
    for name in ("part-0-of-1.safetensors", "part-0-of-1.json"):
        shutil.copy(other / name, folder / name)
    assert list_versions(tmp_path)[0].state == "damaged"
    assert [str(damage) for damage in verify(folder)] == [
        "part 0 of 1 is damaged (checksum: not the file that the manifest lists)"
    ]
    with pytest.raises(DamagedFile):
        read_partition(folder, 0, 1)


# -- damage


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_damage_is_named_and_the_version_before_is_taken(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    older, newer = save(folder, 300, partitions=2), save(folder, 600, partitions=2)
    path = data.draw(st.sampled_from(sorted(newer.iterdir())))
    place = int(data.draw(st.floats(0, 1, exclude_max=True)) * path.stat().st_size)
    how = data.draw(st.sampled_from(["flip", "truncate", "remove", "grow"]))
    if how == "flip":
        flip(path, place)
    elif how == "truncate":
        os.truncate(path, place)
    elif how == "grow":
        path.write_bytes(path.read_bytes() + b" x")
    else:
        path.unlink()
    expected = "manifest" if path.name == "manifest.json" else f"part {path.name[5]} of 2"
    damage = verify(newer)
    assert [str(one).startswith(expected) for one in damage] == [True]
    assert newest_good(folder) == older
    with pytest.raises(NoCheckpoint, match=r"version-600: ") as raised:
        newest_good(newer)
    assert raised.value.help == f"newest good one: {older}"
    with pytest.raises(DamagedFile):
        merged(read_all(newer, 2))
    look = next(info for info in list_versions(folder) if info.version == 600)
    is_seen_at_once = how != "flip" or path.suffix == ".json"
    expected_state = "incomplete" if expected == "manifest" and how == "remove" else "damaged"
    assert look.state == (expected_state if is_seen_at_once else "good")


def test_no_good_one_names_what_is_wrong_with_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flip(save(tmp_path, 300) / "part-0-of-1.safetensors", -1)
    write_parts(tmp_path, make_cut(2, version=600)[:1])
    with pytest.raises(NoCheckpoint) as raised:
        newest_good(tmp_path)
    assert raised.value.message == (
        f"{tmp_path} holds no good checkpoint: version-600: it was never finished (no manifest); "
        "version-300: part 0 of 1 is damaged (checksum)"
    )
    assert raised.value.help.endswith(f"edlz checkpoint verify {tmp_path}")
    assert caplog.text == "", "once"
    save(tmp_path, 100)
    assert newest_good(tmp_path).name == "version-100"
    assert "version-600 is skipped" in caplog.text
    assert "version-300 is skipped" in caplog.text


def test_a_path_without_checkpoints_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoCheckpoint, match="holds no checkpoint"):
        newest_good(tmp_path)
    with pytest.raises(NoCheckpoint, match="does not exist"):
        newest_good(tmp_path / "nowhere")
    with pytest.raises(NoCheckpoint, match="does not exist"):
        newest_good(tmp_path / "version-3")


def test_a_copy_under_another_number_is_damaged(tmp_path: Path) -> None:
    save(tmp_path, 300).rename(tmp_path / "version-400")
    (info,) = list_versions(tmp_path)
    assert (info.state, info.damage[0].short) == ("damaged", "manifest, it is of version 300")


def test_the_list_tells_what_there_is(tmp_path: Path) -> None:
    save(tmp_path, 300, partitions=2)
    write_parts(tmp_path, make_cut(2, version=600)[1:])
    (tmp_path / "version-x").mkdir()
    (tmp_path / "version-1").write_text("not a folder")
    unfinished, good = list_versions(tmp_path)
    assert (unfinished.version, unfinished.state, unfinished.parts, unfinished.partitions) == (
        600,
        "incomplete",
        1,
        2,
    )
    assert (good.version, good.state, good.parts, good.partitions) == (300, "good", 2, 2)
    assert good.manifest is not None
    assert good.manifest.minibatches == 600
    files = [path for path in good.folder.iterdir() if path.name != "manifest.json"]
    assert good.size_bytes == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("second_s", [2000.0, 500.0], ids=["later", "behind"])
def test_newest_is_what_was_written_last_whatever_the_clocks_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second_s: float
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    save(tmp_path, 300, run="first")
    save(tmp_path, 600, run="first")
    clock[0] = second_s
    save(tmp_path, 400, run="second")  # it began from version 300
    clock[0] -= 100.0
    save(tmp_path, 500, run="second")
    assert [info.version for info in list_versions(tmp_path)] == [500, 400, 600, 300]
    assert newest_good(tmp_path).name == "version-500"
    assert prune(tmp_path, 3) == (300,)


def test_a_run_that_goes_on_after_another_is_the_newest_again(tmp_path: Path) -> None:
    assert next_run_number(tmp_path / "nowhere", "first") == 1
    save(tmp_path, 300, run="first")
    save(tmp_path, 200, run="second")
    assert next_run_number(tmp_path, "second") == 2
    assert next_run_number(tmp_path, "second", least=7) == 7
    assert next_run_number(tmp_path, "first") == 3
    save(tmp_path, 100, run="first")
    assert [info.version for info in list_versions(tmp_path)] == [100, 200, 300]


def test_runs_without_a_number_come_first_in_the_order_of_their_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are of an edlz that did not number them."""
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    monkeypatch.setattr(checkpoint_writing, "next_run_number", lambda *_: 0)
    save(tmp_path, 600, run="first")
    clock[0] = 2000.0
    save(tmp_path, 400, run="second")
    clock[0] = 1500.0
    save(tmp_path, 500, run="second")
    assert [info.version for info in list_versions(tmp_path)] == [500, 400, 600]
    monkeypatch.undo()
    clock[0] = 500.0
    save(tmp_path, 450, run="third")
    assert [info.version for info in list_versions(tmp_path)] == [450, 500, 400, 600]


# -- a disk that fails


@pytest.mark.parametrize("after", [0, 1], ids=["the version's folder", "the checkpoint folder"])
def test_a_manifest_whose_name_is_not_durable_makes_nothing_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    older = save(tmp_path, 300)
    parts = write_parts(tmp_path, make_cut(1, version=600))
    left, real = [after], checkpoint_writing.fsync_path

    def fsync_path(path: Path) -> None:
        if not left[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        left[0] -= 1
        real(path)

    monkeypatch.setattr(checkpoint_writing, "fsync_path", fsync_path)
    with pytest.raises(OSError, match="Input/output"):
        finish_version(tmp_path, parts, 600)
    assert newest_good(tmp_path) == older
    assert prune(tmp_path, 1) == ()


# -- a full disk


def full_after(room: int) -> Callable[[int, memoryview], int]:
    left, real = [room], os.write

    def write(descriptor: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = real(descriptor, data[: left[0]])
        left[0] -= count
        return count

    return write


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_full_disk_leaves_the_version_before_and_nothing_half(
    tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    older = save(folder, 300, partitions=2)
    size = sum(path.stat().st_size for path in older.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", full_after(int(share * (size - 10))))
        with pytest.raises(OSError, match="No space left"):
            save(folder, 600, partitions=2)
    assert newest_good(folder) == older
    assert not list(folder.rglob("*.tmp"))
    assert newest_good(folder) != save(folder, 600, partitions=2)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(tiny_disk: Path) -> None:
    older = save(tiny_disk, 300)
    big = make_cut(1, version=600, tables=((8, "Adam", 2000),))
    with pytest.raises(OSError, match="No space left") as raised:
        write_parts(tiny_disk, big)
    assert raised.value.errno == errno.ENOSPC
    assert newest_good(tiny_disk) == older
    assert not list(tiny_disk.rglob("*.tmp"))
    save(tiny_disk, 600)
    assert newest_good(tiny_disk).name == "version-600"


def test_slices_are_those_of_the_layout(tmp_path: Path) -> None:
    """The reader cuts as everybody else does."""
    folder = save(tmp_path, partitions=2)
    state = read_partition(folder, 4, 5)
    lo, hi = slice_bounds(state.layout.dense.size, 4, 5)
    whole = make_state().dense
    assert state.dense.tobytes() == whole[lo:hi].tobytes()
    state.close()

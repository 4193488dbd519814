"""Complete checkpoints as a partition's snapshots, on a real disk."""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from edlz.services.errors import DataError
from edlz.services.protocol.messages import Job
from edlz.services.storage.pruning import prune
from edlz.services.storage.snapshots import SnapshotFolder
from edlz.services.storage.state import MemoryRows, State
from edlz.services.storage.versions import verify
from tests import builders
from tests.states import assert_same_state, finish_version, make_cut, write_parts

PLAN = builders.plan()
LIFE = (2, 1)
NAME = ((1, 2), 7)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no machine crashes here


@pytest.fixture
def job(tmp_path: Path) -> Job:
    config = {"checkpoint_dir": str(tmp_path / "checkpoints")}
    return builders.job(PLAN, config=config, partitions=2)


def cut(**about: object) -> list[State]:
    states = make_cut(2, **about)  # type: ignore[arg-type]
    return [msgspec.structs.replace(state, plan_hash=PLAN.hash) for state in states]


def save(tmp_path: Path, states: Sequence[State] | None = None, **about: object) -> Path:
    states = states or cut()
    version, folder = states[0].version, tmp_path / "checkpoints"
    run = str(about.get("run", "r"))
    finish_version(folder, write_parts(folder, states, run=run), version, **about)  # type: ignore[arg-type]
    return folder / f"version-{version}"


def opened(tmp_path: Path, job: Job) -> SnapshotFolder:
    folder = SnapshotFolder(1, tmp_path / "job")
    folder.open(job)
    return folder


def read_all(folder: SnapshotFolder) -> None:
    for rows in folder.load(NAME, LIFE).rows:
        MemoryRows.of(rows)


def no_links(source: object, target: object) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def test_one_of_this_run_is_a_snapshot_that_pruning_cannot_take_away(tmp_path: Path, job: Job) -> None:
    version = save(tmp_path)
    folder = opened(tmp_path, job)
    assert (folder.names(), folder.checkpoints(())) == ((), (NAME,))
    folder.load(NAME, LIFE).close()
    save(tmp_path, cut(version=9))
    assert prune(tmp_path / "checkpoints", 1) == (7,)
    assert not version.exists()
    loaded = folder.load(NAME, LIFE)
    assert_same_state(cut()[1], loaded)
    loaded.close()
    assert folder.names() == (NAME,)
    assert folder.checkpoints(()) == (NAME,)  # as it was when the folder was looked at last
    folder.refresh()
    assert folder.checkpoints(()) == (((1, 2), 9),)
    folder.drop(NAME, LIFE)
    assert folder.names() == ()


def test_one_of_another_run_or_number_or_plan_or_history_is_none(tmp_path: Path, job: Job) -> None:
    save(tmp_path, cut(version=1), run="another")
    save(tmp_path, make_cut(2, version=2))
    save(tmp_path, [msgspec.structs.replace(s, plan_hash=PLAN.hash) for s in make_cut(3, version=3)])
    save(tmp_path, cut(version=4), ends=((0, 5),))
    write_parts(tmp_path / "checkpoints", cut(version=5))
    save(tmp_path, cut(version=6, era=(0, 0)))
    folder = opened(tmp_path, job)
    assert folder.checkpoints(()) == ()
    assert folder.checkpoints(((0, 5),)) == (((1, 2), 4),)


def test_one_of_another_file_system_is_read_where_it_lies(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path)
    folder = opened(tmp_path, job)
    monkeypatch.setattr(os, "link", no_links)
    loaded = folder.load(NAME, LIFE)
    assert_same_state(cut()[1], loaded)
    loaded.close()
    assert folder.names() == ()
    assert not list((tmp_path / "job").rglob("*.tmp"))


@pytest.mark.parametrize("is_linked", [True, False])
@pytest.mark.parametrize("damage", ["flip", "head", "another cut's"])
def test_a_damaged_one_is_not_tried_again_and_stays_as_it_is(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch, damage: str, is_linked: bool
) -> None:
    version = save(tmp_path)
    body, head = version / "part-1-of-2.safetensors", version / "part-1-of-2.json"
    if damage == "flip":
        content = bytearray(body.read_bytes())
        content[-3] ^= 1
        body.write_bytes(content)
    elif damage == "head":
        head.write_bytes(head.read_bytes()[:50])
    else:
        other = save(tmp_path / "other", cut(seed=1))
        for path in (body, head):
            shutil.copy(other / path.name, path)
    before = verify(version)
    if not is_linked:
        monkeypatch.setattr(os, "link", no_links)
    folder = opened(tmp_path, job)
    with pytest.raises(DataError):
        read_all(folder)
    for each in (folder, opened(tmp_path, job)):
        assert (each.names(), each.checkpoints(())) == ((), ())
    assert verify(version) == before
    assert len(before) == 1


@pytest.mark.parametrize("is_linked", [True, False])
def test_one_that_was_pruned_meanwhile_is_gone_and_not_damaged(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch, is_linked: bool
) -> None:
    save(tmp_path)
    folder = opened(tmp_path, job)
    save(tmp_path, cut(version=9))
    assert prune(tmp_path / "checkpoints", 1) == (7,)
    if not is_linked:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(DataError, match="is gone"):
        folder.load(NAME, LIFE)
    assert not list((tmp_path / "job").rglob("*.damaged"))
    assert folder.checkpoints(()) == (((1, 2), 9),)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_parts_of_one_cut_have_one_name_whatever_eras_they_were_cut_in(tmp_path: Path, mode: str) -> None:
    """In synchronous mode all partitions have to find it in common; in the other one each goes back by itself."""
    plan = builders.plan(mode=mode)
    job = builders.job(plan, config={"checkpoint_dir": str(tmp_path / "checkpoints")}, partitions=2)
    eras = ((1, 9), (1, 2))
    states = [
        msgspec.structs.replace(state, era=era, plan_hash=plan.hash)
        for state, era in zip(make_cut(2), eras, strict=True)
    ]
    save(tmp_path, states, mode=mode)
    for partition, own in enumerate(eras):
        folder = SnapshotFolder(partition, tmp_path / "job")
        folder.open(job)
        [name] = folder.checkpoints(())
        assert name == (max(eras) if mode == "sync" else own, 7)
        loaded = folder.load(name, LIFE)
        assert_same_state(states[partition], loaded)
        loaded.close()
        assert folder.names() == (name,)


def test_of_thousands_the_newest_are_listed(tmp_path: Path, job: Job) -> None:
    for version in range(1, 12):
        save(tmp_path, cut(version=version, shapes=((1,),), tables=()))
    assert [version for _, version in opened(tmp_path, job).checkpoints(())] == [4, 5, 6, 7, 8, 9, 10, 11]

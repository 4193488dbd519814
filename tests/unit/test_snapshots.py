"""Snapshots on a real disk: whole or not at all."""

from pathlib import Path

import numpy as np
import pytest
import safetensors

from edlz.services.errors import DataError
from edlz.services.layout import Layout, Variable, VectorLayout
from edlz.services.ledger import LedgerRecord
from edlz.services.messages import Job, OptimizerSpec
from edlz.services.plan import Plan
from edlz.services.ps.snapshots import SnapshotFolder
from edlz.services.ps.store import State

PLAN = Plan(mode="sync", seed=0, shards=(), records_per_task=1, minibatch_size=1, epochs=1, slots=1)
JOB = Job(name="j", run="r", config={}, plan=PLAN, partitions=1)
BASE = ((0, 0), 0)


def make_state(era: tuple[int, int] = (1, 2), version: int = 7) -> State:
    rng = np.random.default_rng(version)
    return State(
        plan_hash="p",
        base_digest="b",
        partition=0,
        partitions=1,
        layout=Layout(dense=VectorLayout(variables=(Variable(path="w", shape=(4, 8)),))),
        optimizer=OptimizerSpec(name="SGD", settings={"momentum": 0.9, "nesterov": True}),
        era=era,
        version=version,
        iterations=5,
        ledger=LedgerRecord(finished=(0, 3), marks=((4, 2),), minibatches=11),
        counts=np.array([4, 4, 1, 0, 2], np.int32),
        dense=rng.standard_normal(32, np.float32),
        state=np.zeros(0, np.float32),
        counters=np.zeros(0, np.int64),
        slots={"momentum": rng.standard_normal(32, np.float32)},
    )


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
    for name in State.__struct_fields__:
        ours, theirs = getattr(state, name), getattr(loaded, name)
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, theirs)
        elif name == "slots":
            np.testing.assert_array_equal(ours["momentum"], theirs["momentum"])
        else:
            assert ours == theirs


def test_what_was_not_published_is_not_there(folder: SnapshotFolder) -> None:
    files = folder.prepare(make_state(), (1, 1))
    assert folder.names() == ()
    folder.discard(*files)
    assert not any(path.exists() for path in files)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "metadata"])
def test_a_damaged_snapshot_is_named_and_leaves_the_list(folder: SnapshotFolder, damage: str) -> None:
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
    with pytest.raises(DataError, match=r"1\.2-7\.json"):
        folder.load(((1, 2), 7))
    assert folder.names() == ()


def test_the_base_is_never_dropped(folder: SnapshotFolder) -> None:
    folder.write(make_state((0, 0), 0), None)
    folder.drop(BASE, (99, 99))
    assert folder.names() == (BASE,)


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
    def no_room(vectors: object, path: Path) -> None:
        path.write_bytes(b"half of it")
        raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.numpy.save_file", no_room)
    with pytest.raises(OSError, match="No space left"):
        folder.write(make_state(), (1, 1))
    assert folder.names() == ()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

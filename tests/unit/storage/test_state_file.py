"""A state as two files: bit by bit, whole or not at all, and never damaged unnoticed."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.core_ext.table import EmbeddingTable, Initializer
from edlz.services.errors import DataError
from edlz.services.storage import blocks
from edlz.services.storage.blocks import DamagedFile, ForeignFormat
from edlz.services.storage.state import MemoryRows, State
from edlz.services.storage.state_file import read_state, verify_state, write_state
from edlz.services.storage.state_head import read_head
from tests.states import assert_same_state, make_state

SMALL_BLOCK = 512


@pytest.fixture(autouse=True)
def _small_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small state has many blocks, and a vector begins in the middle of one."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", SMALL_BLOCK)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no machine crashes here


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


def write(state: State, folder: Path) -> Path:
    head = folder / "x.json"
    write_state(state, head.with_suffix(".safetensors"), head)
    return head


def read_all(head: Path) -> None:
    """Read a state to its last row, as a store does that begins from it."""
    state = read_state(head)
    try:
        for rows in state.rows:
            MemoryRows.of(rows)
    finally:
        state.close()


TABLES = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from(["SGD", "Adagrad", "Adam"]), st.integers(0, 60)), max_size=3
)
SHAPES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 4)), max_size=3)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), shapes=SHAPES, tables=TABLES)
def test_a_state_comes_back_bit_by_bit(
    folder: Path, seed: int, shapes: list[tuple[int, ...]], tables: list[tuple[int, str, int]]
) -> None:
    state = make_state(seed=seed, shapes=shapes, tables=tables)
    head = write(state, folder)
    verify_state(head)
    loaded = read_state(head)
    assert_same_state(state, loaded)
    loaded.close()


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_rows_are_read_from_anywhere(folder: Path, data: st.DataObject) -> None:
    state = make_state(tables=((5, "Adam", 300),))
    rows = read_state(write(state, folder)).rows[0]
    for _ in range(5):
        first = data.draw(st.integers(0, 300))
        count = data.draw(st.integers(0, 300 - first))
        ours, theirs = np.empty(count * 15, np.float32), np.empty(count * 15, np.float32)
        rows.read(first, count, ours)
        state.rows[0].read(first, count, theirs)
        assert ours.tobytes() == theirs.tobytes()
    rows.close()


def test_other_tools_can_open_it(tmp_path: Path) -> None:
    state = make_state()
    body = write(state, tmp_path).with_suffix(".safetensors")
    tensors = safetensors.numpy.load_file(body)
    assert tensors["dense"].tobytes() == state.dense.tobytes()
    assert tensors["table.1.ids"].tobytes() == state.rows[1].ids.tobytes()
    assert tensors["table.1.rows"].shape == (7, 9)
    with safetensors.safe_open(body, framework="np") as file:
        about = file.metadata()
    assert about["table.1"] == "table 1 ü: dim 3, a row is values[3], m[3], v[3]"


def test_a_real_table_is_written_as_it_was_and_read_into_another(tmp_path: Path) -> None:
    def table() -> EmbeddingTable:
        return EmbeddingTable(4, [(4, 0.1)], Initializer("uniform", -1.0, 1.0), 0)

    ids = np.arange(1000, dtype=np.int64) * 977
    source = table()
    source.extend(1000)[:] = np.random.default_rng(0).standard_normal((1000, 8), np.float32)
    source.index(ids)
    image, digest = source.freeze(), source.digest()
    head = write(make_state(tables=((4, "Adagrad", 0),), rows=(image,)), tmp_path)
    state = read_state(head)
    copy = table()
    view = copy.extend(state.rows[0].row_count)
    buffer = np.empty(view.size, np.float32)
    state.rows[0].read(0, len(view), buffer)
    view[:] = buffer.reshape(view.shape)
    copy.index(state.rows[0].ids)
    state.close()
    assert copy.digest() == digest


# -- damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", SMALL_BLOCK)
        head = write(make_state(), tmp_path_factory.mktemp("whole"))
    return head.with_suffix(".safetensors").read_bytes(), head.read_bytes()


def damaged(folder: Path, body: bytes, head: bytes) -> Path:
    path = folder / "damaged.json"
    path.with_suffix(".safetensors").write_bytes(body)
    path.write_bytes(head)
    return path


def assert_named(path: Path) -> None:
    for look in (verify_state, read_all):
        with pytest.raises(DamagedFile, match=r"damaged\.(json|safetensors) is damaged"):
            look(path)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_one_flipped_bit_is_seen(folder: Path, whole: tuple[bytes, bytes], data: st.DataObject) -> None:
    files = [bytearray(content) for content in whole]
    which = data.draw(st.integers(0, 1))
    bit = data.draw(st.integers(0, 8 * len(files[which]) - 1))
    files[which][bit // 8] ^= 1 << bit % 8
    assert_named(damaged(folder, *files))


def test_every_flipped_bit_of_the_head_is_seen(tmp_path: Path, whole: tuple[bytes, bytes]) -> None:
    body, head = whole
    path = damaged(tmp_path, body, head)
    with path.open("r+b", buffering=0) as file:
        for bit in range(8 * len(head)):
            place, byte = bit // 8, head[bit // 8]
            os.pwrite(file.fileno(), bytes([byte ^ 1 << bit % 8]), place)
            with pytest.raises(DamagedFile):
                read_head(path)
            os.pwrite(file.fileno(), bytes([byte]), place)
    read_head(path)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_every_truncation_is_seen(folder: Path, whole: tuple[bytes, bytes], data: st.DataObject) -> None:
    files = list(whole)
    which = data.draw(st.integers(0, 1))
    files[which] = files[which][: data.draw(st.integers(0, len(files[which]) - 1))]
    assert_named(damaged(folder, *files))


def test_what_is_missing_or_too_long_is_seen(tmp_path: Path, whole: tuple[bytes, bytes]) -> None:
    body, head = whole
    assert_named(damaged(tmp_path, body + b"\0", head))
    path = damaged(tmp_path, body, head)
    path.with_suffix(".safetensors").unlink()
    with pytest.raises(DamagedFile, match=r"damaged\.safetensors is damaged \(missing\)"):
        read_state(path)
    path.unlink()
    with pytest.raises(DamagedFile, match=r"damaged\.json is damaged \(missing\)"):
        read_state(path)


@pytest.mark.parametrize(
    ("head", "whose"), [('{"format":1,"sha256":"0"}', "an older"), ('{"format":3}', "a newer")]
)
def test_another_format_is_named(tmp_path: Path, head: str, whose: str) -> None:
    with pytest.raises(ForeignFormat, match=rf"format \d, written by {whose} edlz; this one reads 2"):
        read_state(damaged(tmp_path, b"", head.encode()))


def test_damage_in_a_table_is_told_when_its_rows_are_read(tmp_path: Path) -> None:
    head = write(make_state(tables=((4, "Adagrad", 500),)), tmp_path)
    body = head.with_suffix(".safetensors")
    content = bytearray(body.read_bytes())
    content[-1] ^= 1
    body.write_bytes(content)
    told: list[DamagedFile] = []
    rows = read_state(head, told.append).rows[0]
    rows.read(0, 100, np.empty(800, np.float32))
    with pytest.raises(DataError, match="checksum"):
        rows.read(400, 100, np.empty(800, np.float32))
    rows.close()
    assert [error.path for error in told] == [body]


# -- a disk that fails


def failing_write(after: int, error: int) -> Callable[[int, memoryview], int]:
    """Return an os.write that takes so many bytes and then fails, as a full disk does."""
    left, real = [after], os.write

    def write(descriptor: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(error, os.strerror(error))
        count = real(descriptor, data[: left[0]])
        left[0] -= count
        return count

    return write


@settings(max_examples=50, deadline=None)
@given(
    share=st.floats(0, 1, exclude_max=True), error=st.sampled_from([errno.ENOSPC, errno.EIO, errno.EDQUOT])
)
def test_a_failing_disk_is_an_os_error_with_its_number(
    folder: Path, whole: tuple[bytes, bytes], share: float, error: int
) -> None:
    after = int(share * (len(whole[0]) + len(whole[1])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", failing_write(after, error))
        with pytest.raises(OSError, match=r"x\.(safetensors|json)") as raised:
            write(make_state(), folder)
    assert raised.value.errno == error


def test_a_failing_fsync_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write(make_state(), tmp_path)

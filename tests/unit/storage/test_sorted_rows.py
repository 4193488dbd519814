"""Rows in the order of their ids: the same blocks for any number of parts, and nothing left on the disk."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from edlz.services.errors import DataError
from edlz.services.storage.blocks import DamagedFile
from edlz.services.storage.sorted_rows import SortedRows
from edlz.services.storage.whole_cut import WholeCut
from tests.states import finish_version, make_cut, write_parts

DIM = 4
TABLES = ((DIM, "Adam", 1000),)


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def saved(folder: Path, partitions: int, *, tables: tuple[tuple[int, str, int], ...] = TABLES) -> Path:
    cut = make_cut(partitions, tables=tables)
    finish_version(folder, write_parts(folder, cut), 7)
    return folder / "version-7"


def blocks_of(version: Path, scratch: Path, block_bytes: int) -> list[tuple[bytes, bytes]]:
    with WholeCut.of_checkpoint(version) as cut:
        rows = SortedRows(cut.sources(0), DIM, scratch, block_bytes)
    found = [(ids.tobytes(), values.tobytes()) for ids, values in rows.blocks()]
    rows.close()
    return found


@pytest.mark.parametrize("block_bytes", [24 * 17, 24 * 999, 24 * 1000, 1 << 20])
def test_blocks_are_the_same_for_any_number_of_parts(tmp_path: Path, block_bytes: int) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = [blocks_of(saved(tmp_path / str(n), n), scratch, block_bytes) for n in (1, 2, 3)]
    assert found[0] == found[1] == found[2]
    assert list(scratch.iterdir()) == []
    ids = np.frombuffer(b"".join(block for block, _ in found[0]), np.int64)
    assert len(ids) == 1000
    assert (np.diff(ids.astype(object)) > 0).all()
    (state,) = make_cut(1, tables=TABLES)
    source = state.rows[0]
    rows = np.empty((1000, source.width), np.float32)
    source.read(0, 1000, rows.reshape(-1))
    values = rows[np.argsort(source.ids), :DIM]
    assert b"".join(block for _, block in found[0]) == values.tobytes()


def test_a_table_without_rows_has_no_blocks(tmp_path: Path) -> None:
    version = saved(tmp_path / "c", 2, tables=((DIM, "Adam", 0),))
    assert blocks_of(version, tmp_path, 100) == []


def test_a_damaged_row_is_noticed(tmp_path: Path) -> None:
    version = saved(tmp_path / "c", 1)
    body = version / "part-0-of-1.safetensors"
    content = bytearray(body.read_bytes())
    content[-7] ^= 1
    body.write_bytes(content)
    with pytest.raises(DamagedFile, match="checksum"):
        blocks_of(version, tmp_path, 24 * 100)


def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    version = saved(tmp_path / "c", 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            blocks_of(version, tmp_path, 24 * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.filename == str(tmp_path)


def test_parts_of_two_cuts_are_refused(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "a", 2), tmp_path / "b" / "version-7"
    cut = make_cut(2, tables=TABLES, seed=1)
    finish_version(other.parent, write_parts(other.parent, [*cut]), 7)
    heads = [one / "part-0-of-2.json", other / "part-0-of-2.json"]
    with pytest.raises(DataError, match="parts 0 and 1 are not of one checkpoint"):
        WholeCut(heads)


def test_files_that_are_open_may_be_removed(tmp_path: Path) -> None:
    version = saved(tmp_path / "c", 2)
    with WholeCut.of_checkpoint(version) as cut:
        for file in version.iterdir():
            file.unlink()
        assert cut.row_count(0) == 1000
        assert len(cut.vector("dense")) == cut.head.layout.dense.size
        rows = SortedRows(cut.sources(0), DIM, tmp_path)
        assert sum(len(ids) for ids, _ in rows.blocks()) == 1000
        rows.close()


def test_whoever_waits_for_a_large_table_hears_that_it_gets_on(tmp_path: Path) -> None:
    calls: list[int] = []
    with WholeCut.of_checkpoint(saved(tmp_path / "c", 2)) as cut:
        rows = SortedRows(cut.sources(0), DIM, tmp_path, 24 * 17, calls.append)
        blocks = list(rows.blocks())
        rows.close()
    assert len(calls) > len(blocks) > 1
    assert sum(calls) == sum(len(ids) for ids, _ in blocks) == 1000

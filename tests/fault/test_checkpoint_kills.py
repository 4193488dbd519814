"""A process that saves checkpoints is killed at any moment: what is taken for good is good."""

import hashlib
import os
import random
import signal
import time
import traceback
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edlz.core_ext.optimizers import make_optimizer
from edlz.core_ext.table import EmbeddingTable, Initializer
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.storage.checkpoint_reading import read_partition
from edlz.services.storage.checkpoint_writing import Finished, write_manifest, write_part
from edlz.services.storage.pruning import prune
from edlz.services.storage.state import MemoryRows, State, TableRows
from edlz.services.storage.versions import NoCheckpoint, list_versions, newest_good, verify
from tests.processes import wait_for
from tests.states import make_state

pytestmark = pytest.mark.fault

KILLS = 50
DIM, ROWS = 8, 50_000
LONGEST_LIFE_S = 0.25  # after its first version; a version takes some hundredths of a second


def test_only_whole_versions_are_taken_for_good(tmp_path: Path) -> None:
    chance = random.Random(20)
    log, folder = tmp_path / "log", tmp_path / "checkpoints"
    log.touch()
    interrupted = seen = 0
    for _ in range(KILLS):
        lines = log_lines(log)
        child = start_to_save(folder, log)
        try:
            wait_for(lambda lines=lines: is_saving(log, lines), "the child saves")  # type: ignore[misc]
            time.sleep(chance.uniform(0, LONGEST_LIFE_S))  # any moment will do
        finally:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "it ended by itself"
        known = digests(log)
        newest = newest_good(folder)
        assert digest_of(newest) == known[version_in(newest)]
        assert version_in(newest) >= max(finished(log))
        for info in list_versions(folder):
            interrupted += info.state == "incomplete" and info.version > version_in(newest)
            if info.is_good:
                assert verify(info.folder) == ()
                assert info.version in known
            else:
                assert info.state == "incomplete", info  # killed while it was written: not one is damaged
        seen += len(list_versions(folder))
    assert interrupted, "no kill came while a version was written"
    assert seen > KILLS


# -- the process that is killed


def start_to_save(folder: Path, log: Path) -> int:
    """Start a process that saves until it is killed; a fork, since fifty Pythons would take a minute to start."""
    child = os.fork()
    if child:
        return child
    try:
        save_for_ever(folder, log)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def save_for_ever(folder: Path, log: Path) -> None:
    """Train a table and save a version after each step; log each content before the manifest makes it valid."""
    optimizer = make_optimizer("Adagrad", {})
    slots = [(slot.size, slot.initial) for slot in optimizer.row_slots(DIM)]
    table = EmbeddingTable(DIM, slots, Initializer("uniform", -0.1, 0.1), 7)
    try:
        version = version_in(newest_good(folder))
        state = read_partition(folder / f"version-{version}", 0, 1)
        fill(table, state.rows[0])
        state.close()
    except NoCheckpoint:
        version = 0
        step(table, np.arange(ROWS, dtype=np.int64), 0)
    tag = str(os.getpid())
    while True:
        version += 1
        step(table, np.random.default_rng(version).choice(ROWS, 2000, replace=False), version)
        state = state_of(table.freeze(), version)
        step(table, np.arange(0, ROWS, 7, dtype=np.int64), version)  # while the image is being written
        digest = digest_of_rows(state.rows[0], version)
        with log.open("a") as file:
            file.write(f"saving {version} {digest}\n")
        info = write_part(folder, state, version=version, number=version, run="r", tag=tag)
        assert info is not None
        finished = Finished(job="j", run="r", mode="sync", number=version, epoch=1, minibatches=version)
        write_manifest(folder, version, [info], finished, tag=tag)
        with log.open("a") as file:
            file.write(f"finished {version}\n")
        prune(folder, 3)


def step(table: EmbeddingTable, ids: np.ndarray, version: int) -> None:  # type: ignore[type-arg]
    gradients = np.random.default_rng(version).standard_normal(len(ids) * DIM, np.float32)
    table.apply(make_optimizer("Adagrad", {}).step(0.1, version).packed, ids, gradients)


def fill(table: EmbeddingTable, rows: TableRows) -> None:
    copy = MemoryRows.of(rows)
    view = table.extend(copy.row_count)
    values = np.empty(view.size, np.float32)
    copy.read(0, copy.row_count, values)
    view[:] = values.reshape(view.shape)
    table.index(copy.ids)


def state_of(rows: TableRows, version: int) -> State:
    ledger = LedgerRecord(finished=(0, version), minibatches=version)
    state = make_state(tables=((DIM, "Adagrad", 0),), rows=(rows,), version=version)
    return msgspec.structs.replace(state, ledger=ledger)


# -- what both look at


def digest_of(version: Path) -> str:
    state = read_partition(version, 0, 1)
    try:
        assert state.ledger.finished == (0, state.version)
        return digest_of_rows(state.rows[0], state.version)
    finally:
        state.close()


def digest_of_rows(rows: TableRows, version: int) -> str:
    copy = MemoryRows.of(rows)
    values = np.empty(copy.row_count * copy.width, np.float32)
    copy.read(0, copy.row_count, values)
    return hashlib.sha256(str(version).encode() + copy.ids.tobytes() + values.tobytes()).hexdigest()


def version_in(folder: Path) -> int:
    return int(folder.name.removeprefix("version-"))


def digests(log: Path) -> dict[int, str]:
    """Return what was logged of each version, by the last life that wrote it."""
    words = [line.split() for line in log.read_text().splitlines()]
    return {int(line[1]): line[2] for line in words if line[0] == "saving"}


def log_lines(log: Path) -> int:
    return len(log.read_text().splitlines())


def is_saving(log: Path, lines: int) -> bool:
    """Whether this life has begun to save; the first one has to get a version done."""
    return log_lines(log) > lines and max(finished(log)) > 0


def finished(log: Path) -> list[int]:
    words = [line.split() for line in log.read_text().splitlines()]
    return [0, *(int(line[1]) for line in words if line[0] == "finished")]

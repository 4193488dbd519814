"""Saving and restoring a large partition, beside plain writing and reading of as many bytes.

The partition has an embedding table of 10M rows of 16 that Adagrad trains.  Rates: its state file is written,
and read back into a store that could serve it; plain is one sequential write with fsync, or read, of a file of
that size on the same disk (`TMPDIR` says which).  Files are out of the page cache before they are read.

Standstill: a real parameter server takes gradients, one after another, while it writes a recovery snapshot;
the longest wait for an answer is compared with what a save may cost: one minibatch, and a tenth of its time.
"""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.interleaving import take_turns
from benchmarks.partition import Partition, adagrad_table
from benchmarks.processes import touch_memory
from benchmarks.rows import Row
from edlz.core_ext.optimizers import make_optimizer
from edlz.services.parameters.store import Store
from edlz.services.protocol.layout import Layout, Variable, VectorLayout
from edlz.services.protocol.messages import OptimizerSpec
from edlz.services.storage.state import MemoryRows
from edlz.services.storage.state_file import read_state, write_state

__all__ = ["measure"]

ROWS, DIM, DENSE = 10_000_000, 16, 1_024
LEAST_OF_WRITE, LEAST_OF_READ, MOST_OF_ALLOWED = 0.6, 0.5, 1.0
FEWEST_ROUNDS, MOST_ROUNDS = 3, 5
BLOCK_BYTES = 4 << 20

BATCH = 8_192
SNAPSHOT_EVERY_S = 15.0  # longer than the table takes to fill
SAVE_S = 60.0  # within which a snapshot has to come and go
POLL_S, SHARE_OF_SAVE = 0.01, 0.1


def measure() -> list[Row]:
    """Measure rates and standstill; takes about two minutes, 5 GB of memory and 3 GB of disk."""
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        rows = _measure_rates(Path(folder))
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        rows.append(_measure_standstill(Path(folder)))
    return rows


# ---------------------------------------------------------------- rates


def _measure_rates(folder: Path) -> list[Row]:
    body, head = folder / "state.safetensors", folder / "state.json"
    plain = folder / "plain"
    store = _store()
    size = [0]

    def save() -> None:
        state = store.capture((1, 1))
        try:
            size[0] = write_state(state, body, head).body_bytes
        finally:
            state.close()

    def restore() -> None:
        state = read_state(head)
        try:
            Store(state, 0)
        finally:
            state.close()

    save()
    figures = take_turns(
        {
            "write": lambda: _seconds(lambda: _write(plain, size[0])),
            "save": lambda: _seconds(save),
            "read": lambda: _seconds(lambda: _read(plain), plain),
            "restore": lambda: _seconds(restore, body),
        },
        fewest=FEWEST_ROUNDS,
        most=MOST_ROUNDS,
    )

    def row(name: str, limit: str, least: float) -> Row:
        return Row(
            f"{name} of {ROWS // 10**6}M rows of {DIM} with Adagrad: edlz's rate / plain {limit}'s",
            _rate(size[0] / figures.median(name)),
            f"plain {limit} {_rate(size[0] / figures.median(limit))}",
            figures.ratio(limit, name),
            least,
            True,
        )

    return [row("save", "write", LEAST_OF_WRITE), row("restore", "read", LEAST_OF_READ)]


def _store() -> Store:
    """Return a store with rows of the ids 0 to ROWS - 1."""
    optimizer = OptimizerSpec(name="Adagrad", settings=make_optimizer("Adagrad", {}).settings)
    layout = Layout(dense=VectorLayout(variables=(Variable(path="dense", shape=(DENSE,)),)))
    state = Store.initial(
        plan_hash="",
        task_count=1,
        partition=0,
        partitions=1,
        layout=layout,
        optimizer=optimizer,
        dense=np.zeros(layout.dense.size, np.float32),
        state=np.zeros(0, np.float32),
        counters=np.zeros(0, np.int64),
        tables=(adagrad_table(DIM),),
    )
    width = state.rows[0].width
    rows = np.random.default_rng(7).standard_normal((ROWS, width), np.float32)
    return Store(msgspec.structs.replace(state, rows=(MemoryRows(np.arange(ROWS), rows),)), 0)


def _seconds(action: Callable[[], object], reads: Path | None = None) -> float:
    """Return how long an action takes; a file that it reads is out of the page cache when it begins.

    Both kinds of reading find memory that this machine has touched before.
    """
    if reads is not None:
        touch_memory(2 * reads.stat().st_size)
        descriptor = os.open(reads, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    began_s = time.perf_counter()
    action()
    return time.perf_counter() - began_s


def _write(path: Path, size: int) -> None:
    block = np.ones(BLOCK_BYTES, np.uint8).data
    with path.open("wb", buffering=0) as file:
        for first in range(0, size, BLOCK_BYTES):
            file.write(block[: size - first])
        os.fsync(file.fileno())


def _read(path: Path) -> None:
    block = memoryview(bytearray(BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.0f} MB/s"


# ---------------------------------------------------------------- standstill


@dataclass
class _Save:
    """When the temporary files of a snapshot were there, as a thread saw it."""

    folder: Path
    began_s: float | None = None
    ended_s: float | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self._stop.wait(POLL_S) and self.ended_s is None:
            is_there = any(self.folder.glob("ps-0/*/*/.*.tmp"))
            if is_there and self.began_s is None:
                self.began_s = time.perf_counter()
            elif not is_there and self.began_s is not None:
                self.ended_s = time.perf_counter()

    def stop(self) -> None:
        self._stop.set()


def _measure_standstill(folder: Path) -> Row:
    with Partition(
        folder,
        dense=DENSE,
        tables=(adagrad_table(DIM),),
        processors=(0, 1),
        recovery_snapshot_secs=SNAPSHOT_EVERY_S,
    ) as partition:
        gradients = np.zeros((BATCH, DIM), np.float32)
        for first in range(0, ROWS, BATCH):
            ids = np.arange(first, min(first + BATCH, ROWS))
            partition.ask([partition.push_rows(ids, gradients[: len(ids)])], 1)
        save = _Save(folder)
        watcher = threading.Thread(target=save.watch, name="watcher")
        watcher.start()
        try:
            waits_s = _waits_until(partition, save)
        finally:
            save.stop()
            watcher.join()
    assert save.began_s is not None
    assert save.ended_s is not None
    longest_s, minibatch_s = max(waits_s), statistics.median(waits_s)
    allowed_s = minibatch_s + SHARE_OF_SAVE * (save.ended_s - save.began_s)
    return Row(
        f"longest wait of a push while {ROWS // 10**6}M rows are saved: edlz / allowed",
        f"{longest_s * 1e3:.0f} ms",
        f"a minibatch and 10 % of the save's {save.ended_s - save.began_s:.1f} s: {allowed_s * 1e3:.0f} ms",
        longest_s / allowed_s,
        MOST_OF_ALLOWED,
        False,
    )


def _waits_until(partition: Partition, save: _Save) -> list[float]:
    """Push random rows until a snapshot has been written; return how long each answer took."""
    generator = np.random.default_rng(7)
    gradients = np.full((BATCH, DIM), 1e-3, np.float32)
    end_s = time.perf_counter() + SAVE_S
    waits_s = []
    while save.ended_s is None:
        ids = np.unique(generator.integers(0, ROWS, BATCH))
        began_s = time.perf_counter()
        partition.ask([partition.push_rows(ids, gradients[: len(ids)])], 1)
        waits_s.append(time.perf_counter() - began_s)
        if time.perf_counter() > end_s:
            raise RuntimeError(f"no snapshot was written within {SAVE_S:.0f} s")
    return waits_s

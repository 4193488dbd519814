"""Readers of data beside the libraries that know their formats best, from the page cache.

`python -m benchmarks readers` prints the table.  100,000 rows of 40 columns (a label, 13 numbers with gaps, 26 ids) as CSV and Parquet,
100,000 byte strings of 304 bytes as TFRecord.  Readers take turns; figures are medians of the process's CPU time, so that
threads of a peer count as well.  At the end a job trains on CSV, and one on RecordIO (`csv_training`).
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
from pyarrow import csv, parquet

from benchmarks import csv_training
from benchmarks.rows import Row, format_rows
from edlz.api.feeds import Mode
from edlz.core_ext.scanning import crc32c
from edlz.services.configuration.job_config import JobConfig
from edlz.services.inputs.data import RecordSource
from edlz.services.inputs.listing import Listed, list_data
from edlz.services.inputs.reading.arrow import arrow_type
from edlz.services.protocol.plan import TaskRange

if TYPE_CHECKING:  # it imports TensorFlow
    from edlz.services.worker.engine.feed.minibatch_streams import Lanes

__all__ = ["measure"]

MODEL = Path(__file__).parent / "columns_model.py"
ROWS, NUMBERS, IDS = 100_000, 13, 26
RECORD_BYTES = 304
BLOCK = 4096  # records of a task
MINIBATCH = 512
TURNS = 5
GROUP = 65_536


def measure() -> list[Row]:
    """Return the rows; takes about four minutes and 150 MB of disk."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder)
        rows = [*_csv_rows(folder), *_parquet_rows(folder), *_tfrecord_rows(folder), *_path_rows(folder)]
    return [*rows, *csv_training.measure()]


def _csv_rows(folder: Path) -> list[Row]:
    rows = []
    for name, label in (("rows.csv", "CSV, 40 columns"), ("quoted.csv", "CSV with quoted texts")):
        listed = list_data(str(folder / name))
        ours, peer = _turns(partial(_read, listed), partial(_arrow_csv, listed))
        rows.append(_rate_row(label, ours, "pyarrow", peer, ROWS, "rows", 0.9))
        size = (folder / name).stat().st_size
        index, newlines = _turns(
            partial(list_data, str(folder / name)), partial(_count_newlines, folder / name)
        )
        rows.append(_rate_row(f"index of {label}", index, "counting newlines", newlines, size, "B", 0.35))
    listed = list_data(str(folder / "rows.csv"))
    task = TaskRange(name=listed.shards[0].name, first=ROWS // 2, count=BLOCK)
    lines = (folder / "rows.csv").read_bytes().split(b"\n")
    its_rows = b"\n".join([lines[0], *lines[1 + task.first : 1 + task.first + BLOCK], b""])
    start, block = _turns(
        lambda: RecordSource(listed.source).read(task), lambda: _arrow_block(its_rows, listed)
    )
    rows.append(
        Row(
            measure="start of a task in a CSV file / reading its first block",
            ours=f"{start * 1e3:.1f} ms",
            limit_or_peer=f"pyarrow on these rows {block * 1e3:.1f} ms",
            ratio=start / block,
            target=2.0,
            higher_is_better=False,
        )
    )
    return rows


def _parquet_rows(folder: Path) -> list[Row]:
    listed = list_data(str(folder / "rows.parquet"))
    ours, peer = _turns(lambda: _read(listed), lambda: _arrow_parquet(folder / "rows.parquet"))
    return [_rate_row("Parquet, 40 columns", ours, "pyarrow", peer, ROWS, "rows", 0.9)]


def _tfrecord_rows(folder: Path) -> list[Row]:
    # Not above: the other formats are measured without it.
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    path = str(folder / "rows.tfrecord")
    listed = list_data(path)

    def by_tensorflow() -> None:
        for _ in tf.data.TFRecordDataset(path).batch(MINIBATCH):
            pass

    ours, peer = _turns(lambda: _read(listed), by_tensorflow)
    return [_rate_row("TFRecord, 304 bytes", ours, "tf.data.TFRecordDataset", peer, ROWS, "records", 1.5)]


def _path_rows(folder: Path) -> list[Row]:
    """The whole path: reader, minibatches, and a batched feed's map, as a worker has them, who makes its feed ready once."""
    listed = list_data(str(folder / "rows.csv"))
    tasks, numbers = list(_tasks(listed)), itertools.count()
    with _lanes(listed) as lanes:

        def whole() -> None:
            assert _rows_of_minibatches(lanes, {next(numbers): task for task in tasks}) == ROWS

        path, alone = _turns(whole, lambda: _read(listed))
    return [
        _rate_row("CSV to minibatches by a batched feed", path, "the reader alone", alone, ROWS, "rows", 0.6)
    ]


@contextmanager
def _lanes(listed: Listed) -> Iterator["Lanes"]:
    """Make a batched feed ready, as a worker does."""
    # Not above: see `_tfrecord_rows`.
    from edlz.services.worker.engine.contract.model_module import load_contract
    from edlz.services.worker.engine.feed.feed import FeedSettings, open_feed
    from edlz.services.worker.engine.feed.minibatch_streams import Lanes
    from edlz.services.worker.engine.feed.record_form import RecordForm

    source = RecordSource(listed.source)
    contract = load_contract(JobConfig(model_file=str(MODEL)))
    settings = FeedSettings(
        mode=Mode.TRAINING,
        minibatch_size=MINIBATCH,
        seed=0,
        threads=1,
        read=lambda assignment: source.read(assignment.records),
        number=lambda assignment, place: assignment.records.first + place,
        sample=lambda: source.read(next(_tasks(listed))),
        form=RecordForm(listed.source),
    )
    lanes = Lanes(open_feed(contract, settings), contract.code, contract.feed)
    try:
        yield lanes
    finally:
        lanes.close()


def _rows_of_minibatches(lanes: "Lanes", tasks: dict[int, TaskRange]) -> int:
    """Take all minibatches of some tasks, one after another."""
    rows = 0
    for number, records in tasks.items():
        lanes.begin(number, records)
    for number in tasks:
        minibatch = lanes.minibatch(number, 0)
        rows += int(minibatch.element[1].shape[0])
        while not minibatch.is_last:
            minibatch = lanes.minibatch(number, minibatch.index + 1)
            rows += int(minibatch.element[1].shape[0])
        lanes.drop(number)
    return rows


def _tasks(listed: Listed) -> Iterator[TaskRange]:
    for shard in listed.shards:
        for first in range(0, shard.count, BLOCK):
            yield TaskRange(name=shard.name, first=first, count=min(BLOCK, shard.count - first))


def _read(listed: Listed) -> None:
    source = RecordSource(listed.source)
    for task in _tasks(listed):
        source.read(task)


def _arrow_csv(listed: Listed) -> None:
    types = {column.name: arrow_type(column.kind) for column in listed.source.columns}
    csv.read_csv(
        listed.shards[0].name,
        csv.ReadOptions(use_threads=False),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(column_types=types),
    )


def _arrow_block(rows: bytes, listed: Listed) -> None:
    types = {column.name: arrow_type(column.kind) for column in listed.source.columns}
    convert = csv.ConvertOptions(column_types=types)
    csv.read_csv(pyarrow.py_buffer(rows), csv.ReadOptions(use_threads=False), None, convert)


def _arrow_parquet(path: Path) -> None:
    file = parquet.ParquetFile(path, memory_map=True)
    for group in range(file.num_row_groups):
        for column in file.read_row_group(group, use_threads=False).columns:
            column.to_numpy()


def _count_newlines(path: Path) -> None:
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            block.count(b"\n")


def _turns(*functions: Callable[[], object]) -> list[float]:
    """Return the median CPU time of each, all taking turns; the first round warms up."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(TURNS + 1):
        for function, taken in zip(functions, times, strict=True):
            began = time.process_time()
            function()
            taken.append(time.process_time() - began)
    return [statistics.median(taken[1:]) for taken in times]


def _rate_row(
    label: str, ours: float, peer: str, peer_seconds: float, count: int, unit: str, target: float
) -> Row:
    def rate(seconds: float) -> str:
        return (
            f"{count / seconds / (1e6 if unit == 'B' else 1e3):,.0f} {'MB' if unit == 'B' else f'k {unit}'}/s"
        )

    return Row(
        measure=f"{label}, edlz / peer",
        ours=rate(ours),
        limit_or_peer=f"{peer} {rate(peer_seconds)}",
        ratio=peer_seconds / ours,
        target=target,
        higher_is_better=True,
    )


def _write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"label": rng.integers(0, 2, ROWS)}
    for i in range(NUMBERS):
        numbers = rng.standard_normal(ROWS).astype(np.float32).round(4)
        columns[f"n{i}"] = pyarrow.array(numbers, mask=rng.random(ROWS) < 0.1)
    columns |= {f"c{i}": rng.integers(0, 10**6, ROWS) for i in range(IDS)}
    table = pyarrow.table(columns)
    csv.write_csv(table, folder / "rows.csv")
    texts = np.array(["plain text", 'a, "b"', "two\nlines"], object)[rng.integers(0, 3, ROWS)]
    csv.write_csv(table.append_column("text", pyarrow.array(texts)), folder / "quoted.csv")
    parquet.write_table(table, folder / "rows.parquet", compression="zstd", row_group_size=GROUP)
    with (folder / "rows.tfrecord").open("wb") as file:
        for record in rng.integers(0, 256, (ROWS, RECORD_BYTES), np.uint8):
            data = record.tobytes()
            head = RECORD_BYTES.to_bytes(8, "little")
            file.write(head + _masked(head) + data + _masked(data))


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


if __name__ == "__main__":
    print(format_rows(measure()))

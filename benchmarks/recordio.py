"""Reading RecordIO beside pyrecordio 0.0.4, from the page cache, on one thread.

`python -m benchmarks.recordio` prints the table.  Every reader gets a file of the same records, each in its
own format, and opens it anew each time: checksums are part of the figure.  The readers take turns; figures
are medians of the thread's CPU time.
"""

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.rows import Row, format_rows
from edlz.api.recordio import Reader, Writer

__all__ = ["measure"]

RECORDS = 20_000
RECORD_BYTES = 1_024
TURNS = 9
RECORDS_PER_READ = 2_000  # about a task
MEBIBYTE = 1 << 20
# pyrecordio's own default makes a chunk of each record of 1 KB; large chunks are the best it can do.
TARGET_DEFAULT = 10.0
TARGET_LARGE_CHUNKS = 2.0


def measure() -> list[Row]:
    """Return the rows; takes about 15 s and 100 MB of disk."""
    rng = np.random.default_rng(0)
    fixed = [row.tobytes() for row in rng.integers(0, 256, (RECORDS, RECORD_BYTES), np.uint8)]
    lengths = rng.integers(RECORD_BYTES * 3 // 4, RECORD_BYTES + 1, RECORDS).tolist()
    variable = [record[:length] for record, length in zip(fixed, lengths, strict=True)]
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pyrecordio's own, once a chunk
        folder = Path(name)
        _write(folder / "fixed", fixed)
        _write(folder / "variable", variable)
        _write_with_peer(folder / "peer-default", fixed)
        _write_with_peer(folder / "peer-large", fixed, max_chunk_size=MEBIBYTE)
        _write_with_peer(folder / "peer-variable", variable)
        ours, ours_variable, peer_default, peer_large, peer_variable = _interleaved(
            lambda: _read(folder / "fixed"),
            lambda: _read(folder / "variable"),
            lambda: _read_with_peer(folder / "peer-default"),
            lambda: _read_with_peer(folder / "peer-large"),
            lambda: _read_with_peer(folder / "peer-variable"),
        )
    label = "sequential read, cached"
    as_it_comes = "pyrecordio 0.0.4 as it comes"
    large_chunks = "pyrecordio 0.0.4, chunks of 1 MiB"
    return [
        _row(f"{label}, 1 KB", ours, as_it_comes, peer_default, TARGET_DEFAULT),
        _row(f"{label}, 1 KB", ours, large_chunks, peer_large, TARGET_LARGE_CHUNKS),
        _row(f"{label}, 0.75 to 1 KB", ours_variable, as_it_comes, peer_variable, TARGET_DEFAULT),
    ]


def _row(label: str, ours: float, peer: str, peer_seconds: float, target: float) -> Row:
    return Row(
        measure=f"{label}, edlz / peer",
        ours=_rate(ours),
        limit_or_peer=f"{peer} {_rate(peer_seconds)}",
        ratio=peer_seconds / ours,
        target=target,
        higher_is_better=True,
    )


def _write(path: Path, records: list[bytes]) -> None:
    with Writer(path) as writer:
        for record in records:
            writer.write(record)


def _write_with_peer(path: Path, records: list[bytes], **options: int) -> None:
    import recordio

    with recordio.File(str(path), "w", **options) as file:
        for record in records:
            file.write(record)


def _read(path: Path) -> int:
    with Reader(path) as reader:
        return sum(len(reader.read(first, RECORDS_PER_READ)) for first in range(0, RECORDS, RECORDS_PER_READ))


def _read_with_peer(path: Path) -> int:
    import recordio

    with recordio.File(str(path), "r") as file:
        return sum(1 for _ in file)


def _interleaved(*reads: Callable[[], int]) -> list[float]:
    """Return each read's median CPU time in seconds."""
    times: list[list[float]] = [[] for _ in reads]
    for _ in range(TURNS):
        for read, taken in zip(reads, times, strict=True):
            start = time.thread_time()
            count = read()
            taken.append(time.thread_time() - start)
            if count != RECORDS:
                raise RuntimeError(f"{count} of {RECORDS} records were read")
    return [statistics.median(taken) for taken in times]


def _rate(seconds: float) -> str:
    return f"{RECORDS / seconds / 1e3:,.0f} k records/s"


if __name__ == "__main__":
    print(format_rows(measure()))

"""What a parameter server process costs, beside a C++ program on libzmq that does no more than serve rows.

Rows: `python -m edlz.services.ps` and the C++ program (native/server.cpp) serve one table that Adagrad trains,
to this process, over Unix sockets.  Counted is the servers' CPU time, of all their threads.

Dense values: 10 MB to and from one client, which asks again when it has its answer, beside the rate at which
ZeroMQ carries frames of 1 MB one way between two processes.  The servers are held to processor 1, this process
to processor 0.
"""

import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import zmq

from benchmarks import native
from benchmarks.interleaving import take_turns
from benchmarks.partition import Partition, adagrad_table
from benchmarks.processes import cpu_s, held_to_processor, pinned, touch_memory
from benchmarks.rows import Row, Skipped
from edlz.services.protocol.messages import Exchange

__all__ = ["measure"]

ROWS, DIM = 100_000, 16
BATCHES = 8
WINDOW = 4  # requests under way
SIZES = {8_192: (30, 1.6), 512: (300, 2.5)}  # rows in a request: requests in a turn, most of C++'s CPU time
MOST_OF_UPDATING = 3.0
MEMORY_OF_NEW_ROWS = 3 << 30
DENSE = 2_621_440  # float32: 10 MiB
DENSE_REQUESTS = 10
LEAST_PULL_RATE, LEAST_PUSH_RATE = 0.5, 0.25
FRAME_BYTES, FRAMES = 1 << 20, 200
PULL, PUSH = 0, 1  # as native/server.cpp has them

_Ids = npt.NDArray[np.int64]
_Gradients = npt.NDArray[np.float32]


def measure() -> list[Row | Skipped]:
    """Measure rows and dense values; takes about a minute."""
    with held_to_processor(0), tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        return [*_measure_rows(Path(folder)), *_measure_creation(Path(folder)), *_measure_dense(Path(folder))]


# ---------------------------------------------------------------- rows


def _measure_rows(folder: Path) -> list[Row | Skipped]:
    try:
        program = native.program("server", folder)
    except native.CompilerMissing as error:
        return [Skipped("ps: CPU time of pulls and pushes of rows beside C++", str(error))]
    with _partition(folder) as ours, _CppServer(program, folder) as theirs:
        _fill(ours, theirs)
        return [row for size in SIZES for row in _rows_of_size(ours, theirs, size)]


def _rows_of_size(ours: Partition, theirs: "_CppServer", size: int) -> list[Row | Skipped]:
    requests, most = SIZES[size]
    batches, gradients = _batches(size), np.full((size, DIM), 1e-3, np.float32)
    figures = take_turns(
        {
            "our pull": lambda: _ask_partition(ours, batches, None, requests),
            "their pull": lambda: theirs.ask(PULL, batches, None, requests),
            "our push": lambda: _ask_partition(ours, batches, gradients, requests),
            "their push": lambda: theirs.ask(PUSH, batches, gradients, requests),
        }
    )
    return [
        Row(
            f"ps: {kind} of {size} rows of {DIM}, server CPU: edlz / C++",
            _us(figures.median(f"our {kind}")),
            f"C++ on libzmq {_us(figures.median(f'their {kind}'))}",
            figures.ratio(f"our {kind}", f"their {kind}"),
            most,
            False,
        )
        for kind in ("pull", "push")
    ]


def _measure_creation(folder: Path) -> list[Row]:
    size, (requests, _) = next(iter(SIZES.items()))
    gradients = np.full((size, DIM), 1e-3, np.float32)
    fresh = _fresh_batches(size)
    touch_memory(MEMORY_OF_NEW_ROWS)
    with _partition(folder) as ours:
        known = _batches(size)
        figures = take_turns(
            {
                "create": lambda: _ask_partition(ours, list(islice(fresh, requests)), gradients, requests),
                "update": lambda: _ask_partition(ours, known, gradients, requests),
            }
        )
    return [
        Row(
            f"ps: push of {size} rows of {DIM}, server CPU: new ids / known ids",
            _us(figures.median("create")),
            f"known ids {_us(figures.median('update'))}",
            figures.ratio("create", "update"),
            MOST_OF_UPDATING,
            False,
        )
    ]


def _batches(size: int) -> list[_Ids]:
    """Return batches of random ids, none twice in a batch."""
    generator = np.random.default_rng(7)
    return [generator.permutation(ROWS)[:size] for _ in range(BATCHES)]


def _fresh_batches(size: int) -> Iterator[_Ids]:
    """Yield batches of ids that are not in any other one."""
    first = 1 << 40
    while True:
        yield np.arange(first, first + size)
        first += size


def _fill(ours: Partition, theirs: "_CppServer") -> None:
    batch = next(iter(SIZES))
    batches = np.array_split(np.arange(ROWS), -(-ROWS // batch))
    for ids in batches:
        gradients = np.zeros((len(ids), DIM), np.float32)
        ours.ask([ours.push_rows(ids, gradients)], 1)
        theirs.ask(PUSH, [ids], gradients, 1)


def _ask_partition(
    ours: Partition, batches: list[_Ids], gradients: _Gradients | None, requests: int
) -> float:
    """Return the server's CPU seconds a request, for pulls, or for pushes if there are gradients."""
    chosen = islice(cycle(batches), requests)
    began_s = ours.cpu_s
    if gradients is None:
        ours.ask((ours.pull_rows(ids) for ids in chosen), WINDOW)
    else:
        ours.ask((ours.push_rows(ids, gradients) for ids in chosen), WINDOW)
    return (ours.cpu_s - began_s) / requests


@contextmanager
def _partition(folder: Path) -> Iterator[Partition]:
    with (
        tempfile.TemporaryDirectory(dir=folder) as own,
        Partition(Path(own), tables=(adagrad_table(DIM),)) as partition,
    ):
        yield partition


class _CppServer:
    """The C++ program, and the one client that it has."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._endpoint = f"ipc://{folder}/cpp"
        self._command = pinned([str(program), self._endpoint, str(DIM)], {1})
        self._context = zmq.Context()

    def __enter__(self) -> "_CppServer":
        self._process = subprocess.Popen(self._command)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(self._endpoint)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._context.destroy(linger=0)

    def ask(self, kind: int, batches: list[_Ids], gradients: _Gradients | None, requests: int) -> float:
        """Return the server's CPU seconds a request."""
        began_s = cpu_s(self._process.pid)
        for number, ids in enumerate(islice(cycle(batches), requests)):
            if number >= WINDOW:
                self._socket.recv(copy=False)
            tensors = [ids] if gradients is None else [ids, gradients[: len(ids)]]
            self._socket.send_multipart([struct.pack("=II", kind, len(ids)), *tensors], copy=False)
        for _ in range(min(WINDOW, requests)):
            self._socket.recv(copy=False)
        return (cpu_s(self._process.pid) - began_s) / requests


# ---------------------------------------------------------------- dense values


def _measure_dense(folder: Path) -> list[Row]:
    with (
        tempfile.TemporaryDirectory(dir=folder) as own,
        Partition(Path(own), dense=DENSE) as partition,
        _FrameSource(folder) as source,
    ):
        figures = take_turns(
            {
                "raw": source.seconds_per_byte,
                "pull": lambda: _seconds_per_byte(partition, partition.pull_dense),
                "push": lambda: _seconds_per_byte(partition, partition.push),
            }
        )
    return [
        Row(
            f"ps: {name} of 10 MiB of dense values, one client: edlz's rate / ZeroMQ's",
            _rate(figures.median(kind)),
            f"ZeroMQ, 1 MiB frames one way {_rate(figures.median('raw'))}",
            figures.ratio("raw", kind),
            least,
            True,
        )
        for kind, name, least in (
            ("pull", "pull", LEAST_PULL_RATE),
            ("push", "push and Adagrad", LEAST_PUSH_RATE),
        )
    ]


def _seconds_per_byte(partition: Partition, message: Callable[[], Exchange]) -> float:
    began_s = time.perf_counter()
    partition.ask((message() for _ in range(DENSE_REQUESTS)), 1)
    return (time.perf_counter() - began_s) / (DENSE_REQUESTS * DENSE * 4)


class _FrameSource:
    """A process that sends frames as fast as ZeroMQ takes them, when it is asked to."""

    def __init__(self, folder: Path) -> None:
        self._endpoint = f"ipc://{folder}/raw"
        self._context = zmq.Context()

    def __enter__(self) -> "_FrameSource":
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._socket.bind(self._endpoint)
        command = [sys.executable, "-m", "benchmarks.ps", self._endpoint]
        self._process = subprocess.Popen(pinned(command, {1}))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._context.destroy(linger=0)

    def seconds_per_byte(self) -> float:
        self._socket.send(b"")
        began_s = time.perf_counter()
        for _ in range(FRAMES):
            self._socket.recv(copy=False)
        return (time.perf_counter() - began_s) / (FRAMES * FRAME_BYTES)


def _send_frames(endpoint: str) -> None:
    socket = zmq.Context().socket(zmq.PAIR)
    socket.set_hwm(0)
    socket.connect(endpoint)
    frame = np.ones(FRAME_BYTES, np.uint8).data
    while True:
        socket.recv()
        for _ in range(FRAMES):
            socket.send(frame, copy=False)


# ---------------------------------------------------------------- the rest


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us"


def _rate(seconds_per_byte: float) -> str:
    return f"{1e-9 / seconds_per_byte:.2f} GB/s"


if __name__ == "__main__":
    _send_frames(sys.argv[1])

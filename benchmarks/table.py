"""The embedding table beside what the machine's memory allows and beside std::unordered_map.

The limit is a C++ loop that copies or changes rows in random order, knowing where each one lies, and fetches
them ahead.  All contenders work on tables of the same size with the same batches of uniform random ids, on one
thread of this process; counted is CPU time.
"""

import ctypes
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import native
from benchmarks.filled_table import filled_table, packed_step
from benchmarks.interleaving import Figures, process_cpu_s, take_turns
from benchmarks.rows import Row, Skipped

__all__ = ["measure"]

ROWS, BATCH = 1_000_000, 8_192
BATCHES = 64  # together half as many ids as rows: a batch finds little of the one before in the caches
LEAST_OF_LIMIT = {16: 0.5, 64: 0.7}  # by dim: a narrow row's place costs about as much as the row
LEAST_OF_MAP = 4.0

_Batches = npt.NDArray[np.int64]
_Call = Callable[[int], object]


def measure() -> list[Row | Skipped]:
    """Measure lookups and SGD steps at dim 16 and 64; takes about half a minute and 1 GB of memory."""
    rows: list[Row | Skipped] = []
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        try:
            limits = _Limits(Path(folder))
        except native.CompilerMissing as error:
            return [Skipped("table: lookup and SGD beside the limits", str(error))]
        ids = np.random.default_rng(7).integers(0, ROWS, (BATCHES, BATCH))
        for dim, least in LEAST_OF_LIMIT.items():
            rows += _rows(dim, least, _figures(limits, dim, ids))
    return rows


def _figures(limits: "_Limits", dim: int, ids: _Batches) -> Figures:
    table, step = filled_table("SGD", ROWS, dim), packed_step("SGD")
    out = np.empty(BATCH * dim, np.float32)
    gradients = np.random.default_rng(8).standard_normal(BATCH * dim, np.float32)
    unique = [np.unique(batch) for batch in ids]  # a step's ids are; sorted, which must not help
    for batch in unique:
        np.random.default_rng(9).shuffle(batch)
    bare = limits.rows(ROWS, dim)
    with limits.map(ROWS, dim) as look_up_in_map:
        calls: dict[str, _Call] = {
            "lookup": lambda i: table.gather(ids[i % BATCHES], out),
            "SGD": lambda i: table.apply(
                step, unique[i % BATCHES], gradients[: len(unique[i % BATCHES]) * dim]
            ),
            "gather": lambda i: limits.gather(bare, ids[i % BATCHES], out),
            "scatter": lambda i: limits.scatter_sgd(bare, unique[i % BATCHES], gradients),
            "map": lambda i: look_up_in_map(ids[i % BATCHES], out),
        }
        return take_turns({name: _turn(call) for name, call in calls.items()})


def _turn(call: _Call) -> Callable[[], float]:
    return lambda: process_cpu_s(call, BATCHES)


def _rows(dim: int, least: float, figures: Figures) -> list[Row]:
    size = f"{ROWS // 10**6}M rows of {dim}"
    rows = [
        Row(
            f"{name}, {size}, one thread: limit's time / ours",
            _rate(figures.median(name)),
            f"{limit} {_rate(figures.median(limit))}",
            figures.ratio(limit, name),
            least,
            True,
        )
        for name, limit in (("lookup", "gather"), ("SGD", "scatter"))
    ]
    if dim == min(LEAST_OF_LIMIT):
        rows.append(
            Row(
                f"lookup, {size}, one thread: unordered_map's time / ours",
                _rate(figures.median("lookup")),
                f"std::unordered_map {_rate(figures.median('map'))}",
                figures.ratio("map", "lookup"),
                LEAST_OF_MAP,
                True,
            )
        )
    return rows


def _rate(seconds: float) -> str:
    return f"{BATCH / seconds / 1e6:.1f} M rows/s"


class _Limits:
    """The compiled limits, with the types that they take.

    Raises
    ------
    native.CompilerMissing
        If they cannot be compiled here.
    """

    def __init__(self, folder: Path) -> None:
        self._library = library = native.load("limits", folder)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        for name, result, arguments in (
            ("huge_block", pointer, (size,)),
            ("gather", None, (pointer, size, pointer, size, pointer)),
            ("scatter_sgd", None, (pointer, size, pointer, size, pointer)),
            ("map_new", pointer, (pointer, size, size)),
            ("map_free", None, (pointer,)),
            ("map_gather", None, (pointer, size, pointer, size, pointer)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments

    def rows(self, count: int, dim: int) -> tuple[int, int]:
        """Return a block of rows, in pages of 2 MB, and their dim."""
        return self._library.huge_block(count * dim * 4), dim

    def gather(self, rows: tuple[int, int], numbers: npt.NDArray[np.int64], out: Any) -> None:
        self._library.gather(*rows, numbers.ctypes.data, len(numbers), out.ctypes.data)

    def scatter_sgd(self, rows: tuple[int, int], numbers: npt.NDArray[np.int64], gradients: Any) -> None:
        self._library.scatter_sgd(*rows, numbers.ctypes.data, len(numbers), gradients.ctypes.data)

    @contextmanager
    def map(self, count: int, dim: int) -> Iterator[Callable[[npt.NDArray[np.int64], Any], None]]:
        """Provide the lookup of a std::unordered_map with rows of the ids 0 to `count` - 1."""
        ids = np.arange(count)
        made = self._library.map_new(ids.ctypes.data, count, dim)

        def look_up(ids: npt.NDArray[np.int64], out: Any) -> None:
            self._library.map_gather(made, dim, ids.ctypes.data, len(ids), out.ctypes.data)

        try:
            yield look_up
        finally:
            self._library.map_free(made)

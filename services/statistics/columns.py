"""What is known of one column of some records: enough to make its figures, and to be added to that of others."""

from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.services.statistics.exact_sums import ExactSums
from edlz.services.statistics.tallies import NumberTally, TextTally

__all__ = ["ColumnPart", "ColumnState", "Kind", "NumberState", "TextState", "make_state"]

Array = npt.NDArray[Any]
Kind = Literal["int64", "float64", "string"]
_SIZES = (1, 2, 4, 8)  # of integers, in bytes


class ColumnPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a column, as it travels: the same for the same records.

    Attributes
    ----------
    rows : int
        Records that have a value.
    count : int
        Values; more than rows, where a record has several.
    infinite : int
        Values that are infinite, which take no part in what follows.
    total, squares : bytes
        Sums, as `ExactSums` has them.
    values, counts, bins, bin_counts : little-endian numbers; integers as short as they all fit, behind a byte that says
        how long they are
    """

    kind: Kind
    rows: int = 0
    count: int = 0
    infinite: int = 0
    total: bytes = b""
    squares: bytes = b""
    low: float | int | None = None
    high: float | int | None = None
    level: int = 0
    values: bytes = b""
    counts: bytes = b""
    bins: bytes = b""
    bin_counts: bytes = b""
    texts: tuple[bytes, ...] = ()


class NumberState:
    """Of a column of numbers."""

    def __init__(self, kind: Literal["int64", "float64"]) -> None:
        self.kind: Literal["int64", "float64"] = kind
        self.rows = self.count = self.infinite = 0
        self.low: float | int | None = None
        self.high: float | int | None = None
        self.sums = ExactSums.of_kind(is_whole=kind == "int64")
        self.tally = NumberTally(kind)

    def add(self, values: Array) -> None:
        """Add some values of records, one each or several; those that are masked, or NaN, are missing."""
        present = ~np.ma.getmaskarray(values)
        plain = np.ma.getdata(values)
        if self.kind == "float64":
            present &= ~np.isnan(plain)
        self.rows += int(np.count_nonzero(present if present.ndim == 1 else present.any(axis=1)))
        found = plain[present].astype(self.kind)
        self.count += len(found)
        if self.kind == "float64":
            is_finite = np.isfinite(found)
            self.infinite += len(found) - int(np.count_nonzero(is_finite))
            found = found[is_finite] + 0.0  # there is one zero
        if not len(found):
            return
        self._widen(found.min().item(), found.max().item())
        self.sums.add(found)
        self.tally.add(*np.unique(found, return_counts=True))

    def merge(self, part: ColumnPart) -> None:
        """Add what is known of other records."""
        self.rows += part.rows
        self.count += part.count
        self.infinite += part.infinite
        if part.low is None or part.high is None:
            return
        self._widen(part.low, part.high)
        sums = ExactSums(_integer(part.total), _integer(part.squares), self.sums.unit)
        self.sums.merge(sums)
        tally = NumberTally(self.kind)
        tally.level = part.level
        tally.values, tally.counts = _array(part.values, self.kind), _array(part.counts, "int64")
        tally.bins, tally.bin_counts = _array(part.bins, "int64"), _array(part.bin_counts, "int64")
        self.tally.merge(tally)

    def part(self) -> ColumnPart:
        self.tally.settle()
        tally = self.tally
        return ColumnPart(
            kind=self.kind,
            rows=self.rows,
            count=self.count,
            infinite=self.infinite,
            total=_bytes(self.sums.total),
            squares=_bytes(self.sums.squares),
            low=self.low,
            high=self.high,
            level=tally.level,
            values=_packed(tally.values),
            counts=_packed(tally.counts),
            bins=_packed(tally.bins),
            bin_counts=_packed(tally.bin_counts),
        )

    def _widen(self, low: float, high: float) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)


class TextState:
    """Of a column of texts; an empty one is missing."""

    kind: Kind = "string"

    def __init__(self) -> None:
        self.rows = self.count = 0
        self.tally = TextTally()

    def add(self, values: Array) -> None:
        """Add some values of records, one each or several."""
        if values.ndim == 1:
            found = [text for text in values.tolist() if text]
            self.rows += len(found)
        else:
            rows = [[text for text in row if text] for row in values.tolist()]
            self.rows += sum(map(bool, rows))
            found = [text for row in rows for text in row]
        self.count += len(found)
        self.tally.add(found)

    def merge(self, part: ColumnPart) -> None:
        """Add what is known of other records."""
        self.rows += part.rows
        self.count += part.count
        self.tally.merge(part.level, part.texts, _array(part.counts, "int64").tolist())

    def part(self) -> ColumnPart:
        found = sorted(self.tally.counts.items())
        return ColumnPart(
            kind=self.kind,
            rows=self.rows,
            count=self.count,
            level=self.tally.level,
            texts=tuple(text for text, _ in found),
            counts=_packed(np.array([count for _, count in found], np.int64)),
        )


ColumnState = NumberState | TextState


def make_state(kind: Kind) -> ColumnState:
    """Return the state of a column of which nothing is known yet."""
    return TextState() if kind == "string" else NumberState(kind)


def _bytes(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _packed(array: Array) -> bytes:
    if array.dtype.kind == "f":
        return array.astype("<f8").tobytes()
    low, high = (int(array.min()), int(array.max())) if len(array) else (0, 0)
    size = next(size for size in _SIZES if -(1 << 8 * size - 1) <= low and high < 1 << 8 * size - 1)
    return bytes((size,)) + array.astype(f"<i{size}").tobytes()


def _array(data: bytes, kind: Literal["int64", "float64"]) -> Array:
    if not data:
        return np.empty(0, kind)
    if kind == "float64":
        return np.frombuffer(data, "<f8").astype(kind)
    return np.frombuffer(data, f"<i{data[0]}", offset=1).astype(kind)

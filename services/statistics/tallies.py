"""How often each value occurs: exactly, for as many different values as memory should hold.

Theory of operation.  A tally keeps every value with its count until there are more than `most` different ones.
From then on it keeps those alone whose hash ends in `level` zeros, a sample of the different values, which tells how many there are;
numbers also have a histogram, whose bins are the values with the same leading bits.  Both depend on which values there are
and on nothing else, so tallies of parts make the same whole in whatever order they are put together.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BIN_ERROR", "MOST_DISTINCT", "NumberTally", "TextTally"]

MOST_DISTINCT = 1 << 20  # some 16 MB of numbers, 150 MB of texts
_BIN_SHIFT = 41  # of the bits of a float64: sign, exponent and 11 of the fraction's stay
BIN_ERROR = 2.0**-12  # of a quantile that a bin's middle stands for, relative
_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)

Array = npt.NDArray[Any]


class NumberTally:
    """How often each number occurs.

    Parameters
    ----------
    kind : dtype
        int64 or float64; all values are finite.

    Attributes
    ----------
    values, counts : ndarray
        In rising order; if `level` is above 0, a sample.
    bins, bin_counts : ndarray
        All numbers by their leading bits; empty as long as `level` is 0.
    """

    def __init__(self, kind: Any, most: int = MOST_DISTINCT) -> None:
        self._kind, self._most, self.level = np.dtype(kind), most, 0
        self.values, self.counts = np.empty(0, self._kind), np.empty(0, np.int64)
        self.bins = self.bin_counts = np.empty(0, np.int64)
        self._waiting: list[tuple[Array, Array]] = []
        self._waiting_count = 0

    def add(self, values: Array, counts: Array) -> None:
        """Count values; whoever reads the attributes calls `settle` first."""
        self._waiting.append((values, counts))
        self._waiting_count += len(values)
        if self._waiting_count > max(len(self.values), self._most // 4):
            self.settle()

    def merge(self, other: "NumberTally") -> None:
        other.settle()
        if other.level:
            self.settle()
            self._degrade(other.level)
            self.bins, self.bin_counts = _united(
                [(self.bins, self.bin_counts), (other.bins, other.bin_counts)]
            )
            found = self._sampled(other.values, other.counts)
            self._keep(*_united([(self.values, self.counts), found]))
        else:
            self.add(other.values, other.counts)

    def settle(self) -> None:
        """Take in what waits."""
        if not self._waiting:
            return
        values, counts = _united(self._waiting)
        self._waiting, self._waiting_count = [], 0
        if self.level:
            self._bin(values, counts)
            values, counts = self._sampled(values, counts)
        self._keep(*_united([(self.values, self.counts), (values, counts)]))

    def _keep(self, values: Array, counts: Array) -> None:
        self.values, self.counts = values, counts
        while len(self.values) > self._most:
            self._degrade(self.level + 1)

    def _degrade(self, level: int) -> None:
        if not self.level:
            self._bin(self.values, self.counts)
        if level > self.level:
            self.level = level
            self.values, self.counts = self._sampled(self.values, self.counts)

    def _bin(self, values: Array, counts: Array) -> None:
        found = bins_of(values.astype(np.float64))
        self.bins, self.bin_counts = _united([(self.bins, self.bin_counts), (found, counts)])

    def _sampled(self, values: Array, counts: Array) -> tuple[Array, Array]:
        is_kept = (_mixed(values) & np.uint64((1 << self.level) - 1)) == 0
        return values[is_kept], counts[is_kept]


class TextTally:
    """How often each text occurs; `counts` is a sample of the texts if `level` is above 0."""

    def __init__(self, most: int = MOST_DISTINCT) -> None:
        self._most, self.level = most, 0
        self.counts: Counter[bytes] = Counter()

    def add(self, texts: Iterable[bytes]) -> None:
        """Count texts, not many at once."""
        if not self.level:
            self.counts.update(texts)
        else:
            self.counts.update(self._sampled(Counter(texts)))
        self._shrink()

    def merge(self, level: int, texts: Sequence[bytes], counts: Sequence[int]) -> None:
        if level > self.level:
            self._degrade(level)
        found = dict(zip(texts, counts, strict=True))
        self.counts.update(self._sampled(found) if self.level > level else found)
        self._shrink()

    def _shrink(self) -> None:
        while len(self.counts) > self._most:
            self._degrade(self.level + 1)

    def _degrade(self, level: int) -> None:
        self.level = level
        self.counts = Counter(self._sampled(self.counts))

    def _sampled(self, counts: "dict[bytes, int]") -> dict[bytes, int]:
        mask = (1 << self.level) - 1
        return {text: count for text, count in counts.items() if not _hash(text) & mask}


def bins_of(values: Array) -> Array:
    """Return the bin of each float64: numbers that rise with the values."""
    bits = values.view(np.int64)
    return (bits ^ ((bits >> 63) & _SIGN)) >> _BIN_SHIFT


def middles_of(bins: Array) -> Array:
    """Return the float64 in the middle of each bin."""
    ordered = (bins << _BIN_SHIFT) + (1 << _BIN_SHIFT - 1)
    return (ordered ^ ((ordered >> 63) & _SIGN)).view(np.float64)


def _united(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the different values of all parts in rising order, and how often each occurs."""
    values = np.concatenate([part[0] for part in parts])
    counts = np.concatenate([part[1] for part in parts])
    if not len(values):
        return values, counts
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    firsts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return values[firsts], np.add.reduceat(counts, firsts)


def _mixed(values: Array) -> Array:
    """Hash numbers.

    References
    ----------
    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014: its 64-bit finalizer.
    """
    bits = values.view(np.uint64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _hash(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

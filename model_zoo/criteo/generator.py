"""Made-up clicks in Criteo's layout, for those without its 11 GB: a seeded generator, not Criteo's data.

Each column's values are ids from 0 to a million, log-uniform: few are frequent, most are rare.  Each id has a
fixed random weight and a fixed random vector, both derived from the seed by hashing, so that no table is
kept.  The logit of a click is a factorization machine of the row's ids plus a weighted sum of its numbers'
logarithms; the label is drawn with that probability.  So a model that learns the interactions beats a
linear one, and none can beat `best_logits`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edlz.model_zoo.conversion.mixing import mixed, unit_interval
from edlz.model_zoo.conversion.shards import DatasetError, Piece, Source
from edlz.model_zoo.criteo.converter import TEST_EVERY
from edlz.model_zoo.criteo.layout import CATEGORICAL, MISSING, NUMERIC, PRESENT, encode_clicks

__all__ = ["Clicks", "Generator", "generate_criteo"]

_IDS = 1_000_000
_PIECE_RECORDS = 8_192
_NUMERIC_MISSING, _CATEGORICAL_MISSING = 0.1, 0.05
_FACTORS = 4  # of an id's vector
_WEIGHT_SCALE, _VECTOR_SCALE, _NUMERIC_SCALE = 0.35, 0.24, 0.1
_FREQUENT = 100  # ids above it count for less: nobody could learn a million of them
_BIAS = -1.5  # gives about a quarter of clicks, as in Criteo's log
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: consecutive multiples lie far apart

Floats = npt.NDArray[np.float64]


class Clicks(NamedTuple):
    """Rows with their labels, as `encode_clicks` takes them, and the logits that the labels were drawn by."""

    labels: npt.NDArray[np.int64]
    numeric: npt.NDArray[np.float32]
    categorical: npt.NDArray[np.int64]
    best_logits: Floats


@dataclass(frozen=True)
class Generator:
    """The same seed gives the same clicks; piece i does not depend on the others."""

    seed: int = 0

    def clicks(self, piece: int, count: int) -> Clicks:
        """Return the first `count` clicks of a piece.

        Returns
        -------
        Clicks
            Of shapes (count,), (count, 13), (count, 26), (count,).
        """
        draws = self._uniform(piece, count, 2 * NUMERIC + 2 * CATEGORICAL + 1)
        amounts, is_absent, popularity, is_missing, outcome = np.split(
            draws, np.cumsum([NUMERIC, NUMERIC, CATEGORICAL, CATEGORICAL]), axis=1
        )
        numeric = np.floor(np.exp(6.0 * amounts**2) - 1.0)  # counts from 0 to 402, most of them small
        numeric[is_absent < _NUMERIC_MISSING] = np.nan
        ids = np.exp(popularity * np.log(_IDS)).astype(np.int64)
        ids[is_missing < _CATEGORICAL_MISSING] = 0
        logits = self._logits(numeric, ids)
        return Clicks(
            labels=(outcome[:, 0] < 1.0 / (1.0 + np.exp(-logits))).astype(np.int64),
            numeric=numeric.astype(np.float32),
            categorical=np.where(ids == 0, MISSING, PRESENT + _as_32_bits(ids)),
            best_logits=logits,
        )

    def _logits(self, numeric: Floats, ids: npt.NDArray[np.int64]) -> Floats:
        fields = np.arange(CATEGORICAL, dtype=np.uint64) * np.uint64(_IDS + 1)
        keys = mixed(ids.astype(np.uint64) + fields + _spread(self.seed))
        damping = np.minimum(1.0, (_FREQUENT / np.maximum(ids, 1)) ** 0.25)
        weights = _WEIGHT_SCALE * damping * _bell(keys, 0)
        vectors = [_VECTOR_SCALE * damping * _bell(keys, 1 + factor) for factor in range(_FACTORS)]
        pairs = sum((v.sum(axis=1) ** 2 - (v**2).sum(axis=1)) / 2.0 for v in vectors)
        slopes = _NUMERIC_SCALE * _bell(mixed(np.arange(NUMERIC)), self.seed)
        logs = np.nan_to_num(np.log1p(numeric) - 1.5)
        return np.asarray(_BIAS + weights.sum(axis=1) + pairs + logs @ slopes)

    def _uniform(self, piece: int, count: int, columns: int) -> Floats:
        """Return numbers in [0, 1) that follow from seed, piece, row and column."""
        cells = np.arange(count * columns, dtype=np.uint64).reshape(count, columns)
        start = mixed(mixed(np.array([_spread(self.seed)])) + np.uint64(piece))
        return unit_interval(mixed(cells * np.uint64(_GOLDEN) + start))


def generate_criteo(records: int, seed: int) -> Source:
    """Return made-up clicks as a data set; every tenth is for the test.

    Raises
    ------
    DatasetError
        If there would be none for the test, or the seed is no 32-bit number.
    """
    if records < TEST_EVERY:
        raise DatasetError(f"records={records} leaves none for the test", f"at least {TEST_EVERY}")
    if not 0 <= seed < 1 << 32:
        raise DatasetError(f"seed={seed} is not from 0 to {(1 << 32) - 1}", "e.g. --seed=1")
    origin = f"a generator (seed {seed}): made-up clicks in Criteo's layout, not Criteo's data"
    return Source(origin, _pieces(Generator(seed), records), records)


def _pieces(generator: Generator, records: int) -> Iterator[Piece]:
    for piece, first in enumerate(range(0, records, _PIECE_RECORDS)):
        count = min(_PIECE_RECORDS, records - first)
        labels, numeric, categorical, _ = generator.clicks(piece, count)
        is_test = np.arange(first, first + count) % TEST_EVERY == TEST_EVERY - 1
        for part, chosen in (("train", ~is_test), ("test", is_test)):
            yield Piece(part, encode_clicks(labels[chosen], numeric[chosen], categorical[chosen]))


def _bell(keys: npt.NDArray[np.uint64], which: int) -> Floats:
    """Return numbers of mean 0 and variance 1, near normal: the sum of four uniform 16-bit ones."""
    bits = mixed(keys + _spread(which))
    quarters = sum(((bits >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.float64) for i in range(4))
    return np.asarray((quarters / 65535.0 - 2.0) * np.sqrt(3.0))


def _spread(number: int) -> np.uint64:
    return np.uint64((number + 1) * _GOLDEN % (1 << 64))


def _as_32_bits(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return distinct 32-bit numbers that look like hashes: an odd factor is a bijection modulo 2**32."""
    return (ids * 0x9E3779B1) & 0xFFFFFFFF

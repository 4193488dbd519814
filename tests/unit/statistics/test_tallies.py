"""Counts of values: exact while there are few, a sample and bins that no order changes when there are many."""

import itertools

import numpy as np
import pytest

from edlz.services.statistics.tallies import BIN_ERROR, NumberTally, TextTally, bins_of, middles_of


def tally_of(values: np.ndarray, most: int) -> NumberTally:
    tally = NumberTally(values.dtype, most)
    for piece in np.array_split(values, 5):
        tally.add(*np.unique(piece, return_counts=True))
    tally.settle()
    return tally


def same(one: NumberTally, other: NumberTally) -> None:
    assert one.level == other.level
    for name in ("values", "counts", "bins", "bin_counts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_few_values_are_counted_exactly() -> None:
    values = np.random.default_rng(1).integers(-9, 9, 1000)
    tally = tally_of(values, 100)
    found, counts = np.unique(values, return_counts=True)
    assert tally.level == 0
    np.testing.assert_array_equal(tally.values, found)
    np.testing.assert_array_equal(tally.counts, counts)


@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_parts_of_many_values_make_the_same_whole_in_any_order(kind: str) -> None:
    values = (np.random.default_rng(1).normal(0, 1e6, 3000)).astype(kind)
    pieces = [values[:40], values[40:700], values[700:]]
    whole = tally_of(values, 100)
    assert whole.level > 0
    assert whole.bin_counts.sum() == len(values)
    for order in itertools.permutations(range(3)):
        joined = NumberTally(kind, 100)
        for place in order:
            joined.merge(tally_of(pieces[place], 100))
        joined.settle()
        same(joined, whole)


def test_the_sample_tells_how_many_there_are() -> None:
    values = np.random.default_rng(1).normal(0, 1, 50_000)
    tally = tally_of(values, 4000)
    assert abs((len(tally.values) << tally.level) / 50_000 - 1) < 0.1


def test_a_bin_s_middle_is_near_every_value_in_it() -> None:
    values = np.concatenate([np.random.default_rng(1).normal(0, 1, 1000) * 10.0**k for k in range(-9, 9)])
    found = middles_of(bins_of(values))
    assert (np.abs(found - values) <= BIN_ERROR * np.abs(values)).all()
    order = np.argsort(values)
    assert (np.diff(bins_of(values)[order]) >= 0).all()


def test_texts_beyond_what_is_kept_are_sampled_alike_in_any_order() -> None:
    texts = [f"word {number % 700}".encode() for number in range(3000)]
    few, many = TextTally(1000), TextTally(100)
    few.add(texts)
    assert few.level == 0
    assert few.counts[b"word 1"] == 5
    many.add(texts)
    assert many.level > 0
    assert abs((len(many.counts) << many.level) / 700 - 1) < 0.4
    for order in itertools.permutations((slice(50), slice(50, 900), slice(900, None))):
        joined = TextTally(100)
        for piece in order:
            part = TextTally(100)
            part.add(texts[piece])
            joined.merge(part.level, list(part.counts), list(part.counts.values()))
        assert (joined.level, joined.counts) == (many.level, many.counts)

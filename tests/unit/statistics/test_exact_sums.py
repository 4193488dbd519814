"""Sums without rounding: equal to fractions, whatever the order and the size."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.statistics.exact_sums import BLOCK, ExactSums

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(finite, min_size=2, max_size=20))
def test_floats_of_any_size_are_added_exactly(values: list[float]) -> None:
    sums = ExactSums.of_kind(is_whole=False)
    sums.add(np.array(values))
    exact = [Fraction(value) for value in values]
    assert Fraction(sums.total, 1 << sums.unit) == sum(exact)
    assert Fraction(sums.squares, 1 << 2 * sums.unit) == sum(each**2 for each in exact)
    assert sums.mean(len(values)) == float(sum(exact) / len(values))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_integers_of_any_size_are_added_exactly(values: list[int]) -> None:
    sums = ExactSums.of_kind(is_whole=True)
    sums.add(np.array(values, np.int64))
    assert (sums.total, sums.squares) == (sum(values), sum(value**2 for value in values))


@pytest.mark.parametrize("extreme", [-(2**63), 2**63 - 1, -1])
def test_a_whole_block_of_extremes_does_not_overflow(extreme: int) -> None:
    count = BLOCK + 3
    sums = ExactSums.of_kind(is_whole=True)
    sums.add(np.full(count, extreme, np.int64))
    assert (sums.total, sums.squares) == (count * extreme, count * extreme**2)


def test_a_whole_block_of_full_fractions_is_exact() -> None:
    value = float(2**53 - 1)
    sums = ExactSums.of_kind(is_whole=False)
    sums.add(np.full(BLOCK, value))
    assert Fraction(sums.squares, 1 << 2 * sums.unit) == BLOCK * Fraction(value) ** 2
    assert sums.variance(BLOCK) == 0.0


def test_parts_make_the_same_whole_in_any_order() -> None:
    values = np.random.default_rng(1).normal(0, 1e9, 1000) ** 3
    whole = ExactSums.of_kind(is_whole=False)
    whole.add(values)
    parts = []
    for piece in np.array_split(np.random.default_rng(2).permutation(values), 7):
        parts.append(ExactSums.of_kind(is_whole=False))
        parts[-1].add(piece)
    joined = ExactSums.of_kind(is_whole=False)
    for part in reversed(parts):
        joined.merge(part)
    assert joined == whole
    np.testing.assert_allclose(whole.variance(1000), values.var(ddof=1), rtol=1e-12)

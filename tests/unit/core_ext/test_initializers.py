"""Initial values of embedding rows: the compiled ones equal their twin bit for bit, and are what they claim."""

import hashlib
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.core_ext.initializers import DISTRIBUTIONS, Initializer
from edlz.core_ext.initializers_numpy import initial_values, mix64, quantile
from edlz.core_ext.table import EmbeddingTable
from tests.rounding import roundings

FLOAT_MAX = float(np.finfo(np.float32).max)
GOLDEN = "ef14fef50527f139e67a01f3756a8f97a8878ae3d35ff190be8b35a078b8b17c"

examples = settings(deadline=None, max_examples=100)
seeds = st.integers(0, 2**64 - 1)
row_ids = st.one_of(st.sampled_from((0, 1, -1, 2**63 - 1, -(2**63))), st.integers(-(2**63), 2**63 - 1))
dims = st.sampled_from((1, 2, 7, 8, 16, 63, 64, 65, 128, 200))


@st.composite
def initializers(draw):
    kind = draw(st.sampled_from(DISTRIBUTIONS))
    a = draw(st.floats(-100, 100))
    if kind == "uniform":
        return Initializer(kind, a, draw(st.floats(a, 200)))
    return Initializer(kind, a, draw(st.floats(0, 100)))


def compiled_values(initializer, seed, ids, dim):
    out = np.empty((len(ids), dim), np.float32)
    table = EmbeddingTable(dim, [], initializer, seed)
    assert table.gather(np.array(ids, np.int64), out) == len(ids)
    return out


def unmix64(value):
    """Return what `mix64` turns into `value`."""
    mask = 2**64 - 1
    z = value ^ (value >> 31) ^ (value >> 62)
    z = z * pow(0x94D049BB133111EB, -1, 2**64) & mask
    z ^= (z >> 27) ^ (z >> 54)
    z = z * pow(0xBF58476D1CE4E5B9, -1, 2**64) & mask
    z ^= (z >> 30) ^ (z >> 60)
    return (z - 0x9E3779B97F4A7C15) & mask


def id_that_draws(bits, seed):
    """Return the id whose row's first element is drawn with these 64 random bits."""
    row_id = unmix64(unmix64(unmix64(bits)) ^ mix64(mix64(seed)))
    return row_id - 2**64 if row_id >= 2**63 else row_id


def many(kind, a, b, dim=64, rows=4000):
    return compiled_values(Initializer(kind, a, b), 3, range(rows), dim).ravel().astype(np.float64)


class TestTwins:
    @examples
    @given(initializers(), seeds, st.lists(row_ids, min_size=1, max_size=20), dims)
    def test_same_bits(self, initializer, seed, ids, dim):
        ours = compiled_values(initializer, seed, ids, dim)
        for row, row_id in zip(ours, ids, strict=True):
            twin = initial_values(initializer, seed, row_id, dim)
            assert row.view(np.uint32).tolist() == twin.view(np.uint32).tolist()

    @pytest.mark.parametrize("kind", DISTRIBUTIONS)
    def test_same_bits_at_the_ends(self, kind):
        """What chance would not show: the far tails have 3 in 100,000 million of a normal distribution."""
        draws = [0, 2**12, 2**20, 2**28, 2**29, 2**40, 2**60, 2**63 - 1, 2**63]
        draws += [2**64 - 1 - draw for draw in draws]
        ids = [id_that_draws(bits, 7) for bits in draws]
        ours = compiled_values(Initializer(kind, 0.0, 1.0), 7, ids, 3)
        twin = np.stack([initial_values(Initializer(kind, 0.0, 1.0), 7, row_id, 3) for row_id in ids])
        assert np.array_equal(ours.view(np.uint32), twin.view(np.uint32))
        if kind == "normal":
            p = [((bits >> 12) + 0.5) / 2**52 for bits in draws]
            exact = [statistics.NormalDist().inv_cdf(x) for x in p]
            assert np.allclose(ours[:, 0], exact, rtol=roundings(1.01), atol=0)  # rounded once to float32
            assert ours[:, 0].min() < -8 < 8 < ours[:, 0].max()

    def test_bits_never_change(self):
        """A job that restarts under a later release continues with the same rows."""
        bits = hashlib.sha256()
        for kind in DISTRIBUTIONS:
            ours = compiled_values(Initializer(kind, -0.05, 0.05), 42, (0, -1, 2**63 - 1, -(2**63)), 33)
            bits.update(ours.astype("<f4").tobytes())
        assert bits.hexdigest() == GOLDEN

    def test_mix64(self):
        """The first outputs of SplitMix64 from state 0, as published with its reference code."""
        golden = 0x9E3779B97F4A7C15
        assert [mix64(0), mix64(golden)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


class TestFunctionOfSeedAndId:
    @pytest.mark.parametrize("kind", ["uniform", "normal", "truncated_normal"])
    def test_differs_from_row_to_row_and_seed_to_seed(self, kind):
        initializer = Initializer(kind, 0.0, 1.0)
        rows = [compiled_values(initializer, seed, range(-50, 50), 8) for seed in (0, 1, 2**63)]
        distinct = {row.tobytes() for table in rows for row in table}
        assert len(distinct) == 300

    def test_a_shorter_row_is_the_beginning_of_a_longer_one(self):
        for kind in DISTRIBUTIONS:
            initializer = Initializer(kind, 0.0, 1.0)
            long = compiled_values(initializer, 9, range(5), 130)
            assert np.array_equal(compiled_values(initializer, 9, range(5), 17), long[:, :17])


class TestDistributions:
    """256,000 values: a mean is off by 0.002 of a standard deviation, a share by 0.001."""

    def test_constant(self):
        assert (many("constant", 0.25, 0.0) == 0.25).all()

    def test_uniform(self):
        values = many("uniform", -1.0, 3.0)
        assert values.min() >= -1
        assert values.max() < 3
        assert abs(values.mean() - 1) < 0.01
        assert abs(values.std() - 4 / math.sqrt(12)) < 0.01
        assert self.distance(values, lambda x: (x + 1) / 4) < 0.004

    def test_normal(self):
        values = many("normal", 1.0, 2.0)
        assert abs(values.mean() - 1) < 0.02
        assert abs(values.std() - 2) < 0.02
        assert self.distance(values, statistics.NormalDist(1, 2).cdf) < 0.004

    def test_truncated_normal(self):
        values = many("truncated_normal", 1.0, 2.0)
        assert values.min() >= -3
        assert values.max() <= 5
        assert abs(values.mean() - 1) < 0.02
        assert abs(values.std() - 2 * 0.87962566103423978) < 0.02
        whole, below = 0.95449973610364159, 0.022750131948179207
        cdf = statistics.NormalDist(1, 2).cdf
        assert self.distance(values, lambda x: (cdf(x) - below) / whole) < 0.004

    def test_no_correlation_between_elements_or_rows(self):
        rows = compiled_values(Initializer("normal", 0.0, 1.0), 11, range(20_000), 16)
        by_element = np.corrcoef(rows.T) - np.eye(16)
        assert np.abs(by_element).max() < 0.04
        assert abs(np.corrcoef(rows[:-1].ravel(), rows[1:].ravel())[0, 1]) < 0.01

    def distance(self, values, cdf):
        """Return the Kolmogorov-Smirnov distance on a grid of quantiles."""
        ordered = np.sort(values)
        places = np.linspace(0, len(ordered) - 1, 500).astype(int)
        return max(abs(cdf(ordered[place]) - place / len(ordered)) for place in places)

    @pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.1, 0.1), (-3.5, -3.5)])
    def test_uniform_without_width(self, a, b):
        assert (many("uniform", a, b, dim=8, rows=8) == np.float32(a)).all()

    def test_uniform_never_reaches_its_upper_end(self):
        """Two neighbours in float32: rounding would give the upper one half of the time."""
        upper = float(np.nextafter(np.float32(1), np.float32(2)))
        assert (many("uniform", 1.0, upper) == 1).all()

    def test_quantiles(self):
        p = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 1001), 2.0 ** -np.arange(2.0, 53.0), [0.075, 0.925]])
        expected = np.array([statistics.NormalDist().inv_cdf(x) for x in p])
        # Two ways through two polynomials of degree 7 and a quotient, both in float64: 32 roundings each.
        assert np.allclose(quantile(p), expected, rtol=64 * 2.0**-53, atol=64 * 2.0**-53)
        assert np.array_equal(quantile(1 - p[-53:-40]), -quantile(p[-53:-40]))


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            (("orthogonal", 0.0, 1.0), '"orthogonal" is not supported; use one of constant, uniform'),
            (("uniform", 1.0, 0.5), "empty between a=1.0 and b=0.5"),
            (("normal", 0.0, -1.0), "b=-1.0 of initializer normal is negative"),
            (("truncated_normal", 0.0, math.nan), "negative|beyond float32"),
            (("constant", math.nan), "beyond float32"),
            (("constant", math.inf), "beyond float32"),
            (("normal", 0.0, FLOAT_MAX / 8), "beyond float32"),
            (("constant", "1"), "a='1' of initializer constant is not a number"),
            (("constant", True), "a=True of initializer constant is not a number"),
        ],
    )
    def test_refused(self, arguments, match):
        with pytest.raises(ValueError, match=match):
            Initializer(*arguments)

    def test_largest(self):
        assert many("constant", FLOAT_MAX, 0.0, dim=1, rows=1) == FLOAT_MAX
        assert np.isfinite(many("normal", 0.0, FLOAT_MAX / 10)).all()

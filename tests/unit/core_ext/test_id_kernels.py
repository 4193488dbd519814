"""The compiled kernels on ids: same results as their NumPy twins, for any ids, and what they refuse."""

import importlib.machinery
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.core_ext import _ids, ids, ids_numpy
from edlz.core_ext.memory import ALIGNMENT_BYTES

EXTREMES = (0, 1, -1, 2**63 - 1, -(2**63), 2**32, -(2**32), 0x9E3779B97F4A7C15 - 2**64)
# Below, at and above the block of ids that are hashed at once.
COUNTS = (0, 1, 2, 31, 32, 33, 64, 65, 1000)

examples = settings(deadline=None, max_examples=100)
partition_counts = st.one_of(st.integers(1, 7), st.sampled_from((64, 1000)))
dims = st.sampled_from((0, 1, 3, 8, 16, 20, 32, 64))


@st.composite
def id_arrays(draw, counts=COUNTS):
    """Ids with and without repetition, small, neighbouring, extreme and random ones."""
    count, seed = draw(st.sampled_from(counts)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    made = {
        "few": rng.integers(-3, 4, count),
        "neighbours": rng.permutation(count) - count // 2,
        "extreme": rng.choice(np.array(EXTREMES), count),
        "any": rng.integers(-(2**63), 2**63 - 1, count, endpoint=True),
        "one": np.full(count, rng.integers(-(2**63), 2**63 - 1, endpoint=True)),
    }[draw(st.sampled_from(("few", "neighbours", "extreme", "any", "one")))].astype(np.int64)
    made.flags.writeable = False
    return made


def random_rows(seed, count, dim):
    rng = np.random.default_rng(seed)
    rows = (rng.standard_normal((count, dim)) * 10 ** rng.uniform(-3, 3, (count, dim))).astype(np.float32)
    rows[rng.random((count, dim)) < 0.02] = np.inf
    rows.flags.writeable = False
    return rows


def assert_same(ours, twins):
    for one, other in zip(ours, twins, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


class TestPartitionOf:
    @examples
    @given(id_arrays(), partition_counts)
    def test_twins(self, array, partitions):
        assert_same([ids.partition_of(array, partitions)], [ids_numpy.partition_of(array, partitions)])

    def test_known_values(self):
        """The first outputs of SplitMix64 with seed 0 are the hashes of 0, gamma and 2 * gamma."""
        gamma = 0x9E3779B97F4A7C15
        array = np.array([0, gamma, 2 * gamma % 2**64], np.uint64).view(np.int64)
        expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
        for partitions in (2, 3, 1000, 2**31 - 1):
            assert ids.partition_of(array, partitions).tolist() == [mixed % partitions for mixed in expected]

    @pytest.mark.parametrize("partitions", [2, 3, 7, 64])
    @pytest.mark.parametrize("step", [1, 2, 64, 1000, 2**32])
    def test_regular_ids_are_spread_evenly(self, partitions, step):
        counts = np.bincount(ids.partition_of(np.arange(20_000) * step, partitions), minlength=partitions)
        expected = 20_000 / partitions
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


class TestGroupIds:
    @examples
    @given(id_arrays(), partition_counts)
    def test_twins(self, array, partitions):
        assert_same(ids.group_ids(array, partitions), ids_numpy.group_ids(array, partitions))

    @examples
    @given(id_arrays(), st.integers(1, 7))
    def test_against_plain_python(self, array, partitions):
        unique, counts, places = ids.group_ids(array, partitions)
        owners = dict(zip(array.tolist(), ids.partition_of(array, partitions).tolist(), strict=True))
        groups = [[id_ for id_ in owners if owners[id_] == partition] for partition in range(partitions)]
        assert unique.tolist() == [id_ for group in groups for id_ in group]
        assert counts.tolist() == [len(group) for group in groups]
        assert unique[places].tolist() == array.tolist()

    def test_all_extremes_are_ids(self):
        unique, counts, places = ids.group_ids(np.array(EXTREMES * 2), 1)
        assert (unique.tolist(), counts.tolist()) == (list(EXTREMES), [len(EXTREMES)])
        assert places.tolist() == list(range(len(EXTREMES))) * 2

    @pytest.mark.parametrize("partitions", range(1, 8))
    def test_of_nothing_and_of_one_id(self, partitions):
        unique, counts, places = ids.group_ids(np.empty(0, np.int64), partitions)
        assert (len(unique), counts.tolist(), len(places)) == (0, [0] * partitions, 0)
        unique, counts, places = ids.group_ids(np.full(100, -5), partitions)
        assert (unique.tolist(), counts.sum(), places.tolist()) == ([-5], 1, [0] * 100)

    def test_many_ids(self):
        array = np.random.default_rng(3).integers(0, 200_000, 300_000)
        assert_same(ids.group_ids(array, 5), ids_numpy.group_ids(array, 5))


class TestSumRows:
    @examples
    @given(st.sampled_from(COUNTS), dims, st.integers(1, 40), st.integers(0, 2**32 - 1))
    def test_twins(self, count, dim, rows, seed):
        gradients = random_rows(seed, count, dim)
        places = np.random.default_rng(seed).integers(0, rows, count).astype(np.int32)
        places.flags.writeable = False
        assert_same([ids.sum_rows(gradients, places, rows)], [ids_numpy.sum_rows(gradients, places, rows)])

    def test_order_is_that_of_the_gradients(self):
        """1e8 + 1 is 1e8 in float32, so the sum says which two were added first."""
        places = np.zeros(3, np.int32)
        for column, expected in (([1e8, 1, -1e8], 0), ([1e8, -1e8, 1], 1), ([1, 1e8, -1e8], 0)):
            gradients = np.array(column, np.float32).reshape(3, 1)
            assert ids.sum_rows(gradients, places, 1).tolist() == [[expected]]

    def test_rows_without_gradients_are_zero(self):
        sums = ids.sum_rows(np.ones((2, 3), np.float32), np.array([4, 4], np.int32), 6)
        assert sums.sum(1).tolist() == [0, 0, 0, 0, 6, 0]
        assert sums.ctypes.data % ALIGNMENT_BYTES == 0
        assert ids.sum_rows(np.empty((0, 3), np.float32), np.empty(0, np.int32), 2).tolist() == [[0] * 3] * 2
        assert ids.sum_rows(np.empty((0, 3), np.float32), np.empty(0, np.int32), 0).shape == (0, 3)

    @pytest.mark.parametrize("place", [-1, 5, 2**31 - 1, -(2**31)])
    def test_place_out_of_range(self, place):
        places = np.array([0, 4, place, -1], np.int32)
        with pytest.raises(IndexError, match=rf"places\[2\]={place} is not within the 5 rows"):
            ids.sum_rows(np.ones((4, 2), np.float32), places, 5)

    @pytest.mark.parametrize(
        ("gradients", "places", "rows", "match"),
        [
            (np.ones((3, 2), np.float32), np.zeros(2, np.int32), 1, "2 places for 3 gradients"),
            (np.ones((3, 2), np.float32), np.zeros(3, np.int32), -1, "rows=-1 is negative"),
            (np.ones((3, 2), np.float64), np.zeros(3, np.int32), 1, "Buffer dtype mismatch"),
            (np.ones((3, 2), np.float32), np.zeros(3, np.int64), 1, "Buffer dtype mismatch"),
            (np.ones((3, 4), np.float32)[:, ::2], np.zeros(3, np.int32), 1, "contiguous"),
            (np.ones(3, np.float32), np.zeros(3, np.int32), 1, "wrong number of dimensions"),
        ],
    )
    def test_refusals(self, gradients, places, rows, match):
        with pytest.raises(ValueError, match=match):
            ids.sum_rows(gradients, places, rows)

    def test_alignment(self):
        odd = np.zeros(26, np.uint8)[2:].view(np.float32).reshape(3, 2)
        with pytest.raises(ValueError, match="gradients is not aligned to 4 bytes"):
            ids.sum_rows(odd, np.zeros(3, np.int32), 1)
        with pytest.raises(ValueError, match="places is not aligned to 4 bytes"):
            ids.sum_rows(np.ones((3, 2), np.float32), np.zeros(14, np.uint8)[2:].view(np.int32), 1)


class TestMergeRows:
    @examples
    @given(
        st.lists(id_arrays(counts=(0, 1, 2, 33, 100)), min_size=1, max_size=5),
        dims,
        st.sampled_from((1, 2, 3, 7)),
        st.integers(0, 2**32 - 1),
    )
    def test_twins(self, arrays, dim, divisor, seed):
        parts = [(array, random_rows(seed + n, len(array), dim)) for n, array in enumerate(arrays)]
        assert_same(ids.merge_rows(parts, divisor), ids_numpy.merge_rows(parts, divisor))

    def test_known_values(self):
        parts = [
            (np.array([7, -2]), np.array([[1, 2], [3, 4]], np.float32)),
            (np.array([5, 7]), np.array([[10, 20], [30, 40]], np.float32)),
        ]
        merged, gradients = ids.merge_rows(parts, 4)
        assert merged.tolist() == [7, -2, 5]
        assert gradients.tolist() == [[31 / 4, 42 / 4], [3 / 4, 1], [10 / 4, 5]]

    def test_parts_are_left_alone(self):
        array, gradients = np.array([1, 2]), np.ones((2, 2), np.float32)
        merged, sums = ids.merge_rows([(array, gradients)], 2)
        assert not np.shares_memory(sums, gradients)
        assert not np.shares_memory(merged, array)
        assert gradients.tolist() == [[1, 1], [1, 1]]

    @pytest.mark.parametrize(
        ("parts", "match"),
        [
            ([], "there are no parts"),
            ([(np.array([1]), np.ones((2, 3), np.float32))], "part 0 has 1 ids and 2 gradients"),
            (
                [(np.array([1]), np.ones((1, 3), np.float32)), (np.array([1]), np.ones((1, 4), np.float32))],
                "part 1 has rows of 4 and those before of 3",
            ),
            ([(np.array([1], np.int32), np.ones((1, 3), np.float32))], "Buffer dtype mismatch"),
            ([(np.array([1]), np.ones((1, 3)))], "Buffer dtype mismatch"),
            ([(np.array([1]), np.zeros(14, np.uint8)[2:].view(np.float32).reshape(1, 3))], "not aligned"),
        ],
    )
    def test_refusals(self, parts, match):
        with pytest.raises(ValueError, match=match):
            ids.merge_rows(parts, 1)

    @pytest.mark.parametrize("divisor", [0, 1e-60])
    def test_divisor(self, divisor):
        with pytest.raises(ZeroDivisionError, match="divisor is 0"):
            ids.merge_rows([(np.array([1]), np.ones((1, 3), np.float32))], divisor)

    def test_no_array(self):
        with pytest.raises(TypeError, match="part 0 must not have None"):
            ids.merge_rows([(None, np.ones((1, 3), np.float32))], 1)


@pytest.mark.parametrize("kernel", [ids.partition_of, ids.group_ids])
class TestRefusals:
    @pytest.mark.parametrize("partitions", [0, -1, 2**31])
    def test_partitions(self, kernel, partitions):
        with pytest.raises(ValueError, match=f"partitions={partitions} is not within 1 and 2147483647"):
            kernel(np.arange(3), partitions)

    @pytest.mark.parametrize(
        ("array", "match"),
        [
            (np.arange(3, dtype=np.int32), "Buffer dtype mismatch"),
            (np.arange(3, dtype=np.uint64), "Buffer dtype mismatch"),
            (np.arange(6)[::2], "contiguous"),
            (np.arange(6).reshape(2, 3), "wrong number of dimensions"),
            (np.zeros(28, np.uint8)[4:].view(np.int64), "ids is not aligned to 8 bytes"),
        ],
    )
    def test_arrays(self, kernel, array, match):
        with pytest.raises(ValueError, match=match):
            kernel(array, 2)

    def test_no_array(self, kernel):
        with pytest.raises(TypeError, match="bytes-like"):
            kernel([1, 2], 2)
        with pytest.raises(TypeError, match="None"):
            kernel(None, 2)


def test_loaded_is_compiled():
    assert Path(_ids.__file__).name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    for name in ids_numpy.__all__:
        assert getattr(ids, name) is getattr(_ids, name)
        assert type(getattr(ids, name)).__name__ == "cython_function_or_method"

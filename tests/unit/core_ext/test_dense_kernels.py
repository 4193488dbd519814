"""The compiled dense kernels: same bits as their NumPy twins on every processor, and what they refuse."""

import importlib.machinery
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.core_ext import _dense, dense, dense_numpy
from edlz.core_ext.memory import ALIGNMENT_BYTES, aligned_empty, aligned_zeros
from edlz.core_ext.steps import STEP_BYTES, Kind, Step

COUNTS = (0, 1, 15, 16, 17, 1000)
MODULE_FILE = Path(_dense.__file__)

# A kernel is a function of `dense`, or "apply" with a kind of step.  Arrays are named as in the messages.
SLOTS = {f"apply {name}": len(is_single) for name, is_single in dense.kinds()}
KERNEL_ARRAYS = {
    "copy": ("out", "values"),
    "add": ("accumulator", "gradient"),
    "divide": ("accumulator",),
    "scale": ("vector",),
    "clip": ("vector",),
    "squared_norm": ("vector",),
} | {
    kernel: ("out", "values", "gradient", *(f"slots[{place}]" for place in range(count)))
    for kernel, count in SLOTS.items()
}
SINGLES = {("apply ROWWISE_ADAGRAD", "slots[0]")}
WRITTEN = {"out", "accumulator", "vector", "slots[0]", "slots[1]", "slots[2]"}
# All steps go through one check; these have each number of slots, and the slot of one element.
CHECKED_KERNELS = [kernel for kernel in KERNEL_ARRAYS if kernel not in SLOTS] + [
    "apply SGD",
    "apply NESTEROV",
    "apply ADAM",
    "apply AMSGRAD",
    "apply ROWWISE_ADAGRAD",
]


def is_written(kernel, name):
    return name in WRITTEN and kernel != "squared_norm"


PAIRS = [
    (kernel, written, other)
    for kernel in CHECKED_KERNELS
    for written in KERNEL_ARRAYS[kernel]
    for other in KERNEL_ARRAYS[kernel]
    if is_written(kernel, written) and written != other
]
# out may be exactly values: test_exact_overlap_of_out_and_values.
OVERLAPS = [
    (*pair, shift)
    for pair in PAIRS
    for shift in (-7, -1, 0, 1, 7)
    if not (shift == 0 and set(pair[1:]) == {"out", "values"})
    and not {(pair[0], name) for name in pair[1:]} & SINGLES
]

# A busy machine may hold up any example; the number keeps the file within seconds.
examples = settings(deadline=None, max_examples=60)
floats_32 = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)
decays = st.one_of(st.just(0.0), st.floats(min_value=0, max_value=1))
scalars_32 = st.floats(min_value=0, max_value=10, width=32)


def packed(kernel, decay=0.0, scalars=(0.1, 0.9, 0.5, 0.5, 0.01)):
    return Step(kind=Kind[kernel.removeprefix("apply ")], decay=decay, scalars=scalars).packed


def call(module, kernel, arrays, *scalars):
    """Call a kernel; what follows the arrays is a step's bytes or a number."""
    if kernel not in SLOTS:
        return getattr(module, kernel)(*arrays.values(), *scalars)
    step = scalars[0] if scalars else packed(kernel)
    out, values, gradient, *slots = arrays.values()
    return module.apply(step, out, values, slots, gradient)


def usual_scalars(kernel):
    return (3.0,) if kernel in {"divide", "scale", "clip"} else ()


def same_bits(one, other):
    """Compare bit for bit (so 0 and -0 differ), all NaNs being one."""
    return bool(np.array_equal(canonical(one), canonical(other)))


def canonical(array):
    plain = array.copy()
    plain[np.isnan(plain)] = np.nan
    return plain.view(np.uint32)


def awkward_values(seed, count):
    """Bit patterns of all kinds: ordinary numbers, denormals, infinities, NaNs and both zeros."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-(2**20), 2**20, count).astype(np.float32) / np.float32(2**16)
    any_bits = rng.integers(0, 2**32, count, np.uint32).view(np.float32)
    denormals = rng.integers(0, 2**20, count, np.uint32).view(np.float32)
    special = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38], np.float32), count)
    kind = rng.integers(0, 16, count)
    return np.select([kind < 10, kind < 13, kind < 15], [values, any_bits, denormals], special)


def ordinary_values(seed, count):
    """Numbers of many sizes, of which each order of adding makes another sum."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(count) * 10 ** rng.uniform(-2, 2, count)).astype(np.float32)


def placed(values, is_shifted):
    """Copy to memory aligned to 64 bytes, or 4 bytes past it."""
    start = 1 if is_shifted else 0
    array = aligned_empty(len(values) + start, np.float32)[start:]
    array[:] = values
    return array


@st.composite
def calls(draw, kernel):
    """Arrays for both twins, made the same way in separate memory."""
    count = draw(st.sampled_from(COUNTS))
    is_in_place = draw(st.booleans())
    seed, head = draw(st.integers(0, 2**32 - 1)), draw(st.lists(floats_32, max_size=4))
    shifts = {name: draw(st.booleans()) for name in KERNEL_ARRAYS[kernel]}

    def arrays():
        made = {}
        for place, (name, is_shifted) in enumerate(shifts.items()):
            size = 1 if (kernel, name) in SINGLES else count
            values = awkward_values(seed + place, size)
            values[: len(head)] = head[:size]
            made[name] = placed(values, is_shifted)
        if is_in_place and "values" in made:
            made["out"] = made["values"]
        for name, array in made.items():
            array.flags.writeable = is_written(kernel, name) or array is made.get("out")
        return made

    return arrays(), arrays()


def assert_twins_agree(kernel, both, *scalars):
    ours, twins = both
    our_result, twin_result = call(dense, kernel, ours, *scalars), call(dense_numpy, kernel, twins, *scalars)
    assert our_result == twin_result or (our_result != our_result and twin_result != twin_result)
    for name, array in ours.items():
        assert same_bits(array, twins[name]), name


class TestTwins:
    @examples
    @given(calls("copy"))
    def test_copy(self, both):
        assert_twins_agree("copy", both)

    @examples
    @given(calls("add"))
    def test_add(self, both):
        assert_twins_agree("add", both)

    @examples
    @given(calls("divide"), st.one_of(st.integers(1, 1000), floats_32.filter(lambda x: x != 0)))
    def test_divide(self, both, divisor):
        assert_twins_agree("divide", both, divisor)

    @examples
    @given(calls("scale"), floats_32)
    def test_scale(self, both, factor):
        assert_twins_agree("scale", both, factor)

    @examples
    @given(calls("clip"), st.floats(min_value=0, width=32))
    def test_clip(self, both, limit):
        assert_twins_agree("clip", both, limit)

    @examples
    @given(calls("squared_norm"))
    def test_squared_norm(self, both):
        assert_twins_agree("squared_norm", both)

    @pytest.mark.parametrize("kernel", SLOTS)
    @examples
    @given(data=st.data(), decay=decays, scalars=st.lists(scalars_32, min_size=14, max_size=14))
    def test_apply(self, kernel, data, decay, scalars):
        assert_twins_agree(kernel, data.draw(calls(kernel)), packed(kernel, decay, scalars))

    @examples
    @given(st.integers(0, 1000), st.integers(0, 2**32 - 1))
    def test_order_of_sums(self, count, seed):
        vector = ordinary_values(seed, count)
        assert dense.squared_norm(vector) == dense_numpy.squared_norm(vector)
        kernel, (ours, twins) = "apply ROWWISE_ADAGRAD", (np.ones(1, np.float32), np.ones(1, np.float32))
        for module, slot in ((dense, ours), (dense_numpy, twins)):
            call(module, kernel, {"out": vector.copy(), "values": vector, "gradient": vector, "slot": slot})
        assert same_bits(ours, twins)

    def test_known_values(self):
        accumulator = np.array([1, 2, -3], np.float32)
        dense.add(accumulator, np.array([5, 5, 5], np.float32))
        dense.divide(accumulator, 2)
        assert accumulator.tolist() == [3, 3.5, 1]
        dense.scale(accumulator, -2)
        dense.clip(accumulator, 6.5)
        assert accumulator.tolist() == [-6, -6.5, -2]
        assert dense.squared_norm(accumulator) == 36 + 42.25 + 4
        slot, out, gradient = np.full(3, 2, np.float32), np.empty(3, np.float32), np.full(3, 4, np.float32)
        dense.apply(packed("MOMENTUM", 0.0, (0.5, 0.25)), out, accumulator, [slot], gradient)
        assert (slot.tolist(), out.tolist()) == ([-1.5] * 3, [-7.5, -8, -3.5])
        dense.apply(packed("NESTEROV", 0.5, (0.5, 0.5)), out, accumulator, [slot], gradient)
        assert (slot.tolist(), out.tolist()) == ([-2.75] * 3, [-4.5 - 3.375, -4.875 - 3.375, -1.5 - 3.375])

    def test_squared_norm_is_added_up_in_float64(self):
        """In float32 each small square would vanish beside the large one."""
        vector = np.full(8001, 1e-4, np.float32)
        vector[0] = 100
        # Added up in float64: 8,001 sums, each off by 2**-53 of 1e4 at most.
        assert dense.squared_norm(vector) == pytest.approx(1e4 + 8e-5, abs=8001 * 2.0**-53 * 1e4)


def skipping_sum(lo, hi, leaves):
    """The sum over [lo, hi) of a tree, by its definition; None of no leaves."""
    if hi - lo == 1:
        return leaves.get(lo)
    middle = (lo + hi) // 2
    left, right = skipping_sum(lo, middle, leaves), skipping_sum(middle, hi, leaves)
    if left is None or right is None:
        return right if left is None else left
    return left + right


def nodes_inside(begin, end, lo, hi):
    """The largest nodes of the tree over [lo, hi) that lie in [begin, end)."""
    if lo >= end or hi <= begin:
        return []
    if begin <= lo and hi <= end:
        return [(lo, hi)]
    middle = (lo + hi) // 2
    return nodes_inside(begin, end, lo, middle) + nodes_inside(begin, end, middle, hi)


class TestTreeMean:
    @examples
    @given(
        places=st.sets(st.integers(0, 40) | st.integers(0, 2**32 - 1), min_size=1, max_size=20).map(sorted),
        count=st.sampled_from((*COUNTS, 4095, 4096, 4097)),
        divisor=st.integers(1, 1000),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_twins(self, places, count, divisor, seed):
        vectors = [awkward_values(seed + i, count) for i in range(len(places))]
        ours, twins = placed(np.zeros(count), is_shifted=bool(seed % 2)), np.empty(count, np.float32)
        dense.tree_mean(ours, vectors, places, divisor)
        dense_numpy.tree_mean(twins, vectors, places, divisor)
        assert same_bits(ours, twins)

    @examples
    @given(
        places=st.sets(st.integers(0, 31), min_size=1).map(sorted),
        cuts=st.sets(st.integers(1, 31)),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_whoever_adds_up_which_nodes_first_the_sum_is_the_same(self, places, cuts, seed):
        leaves = {place: ordinary_values(seed + place, 17) for place in places}
        sums, at = [], []
        for begin, end in itertools.pairwise(sorted({0, *cuts, 32})):
            for lo, hi in nodes_inside(begin, end, 0, 32):
                inside = [place for place in places if lo <= place < hi]
                if inside:
                    sums.append(np.empty(17, np.float32))
                    dense.tree_mean(sums[-1], [leaves[place] for place in inside], inside, 1)
                    at.append(lo)
        ours, whole = np.empty(17, np.float32), np.empty(17, np.float32)
        dense.tree_mean(ours, sums, at, len(places))
        dense.tree_mean(whole, list(leaves.values()), places, len(places))
        assert same_bits(ours, whole)
        assert same_bits(ours, skipping_sum(0, 32, leaves) / np.float32(len(places)))

    def test_three_are_added_one_after_another(self):
        one, two, three = (ordinary_values(seed, 1000) for seed in range(3))
        out = np.empty(1000, np.float32)
        dense.tree_mean(out, [one, two, three], range(3), 3)
        assert same_bits(out, (one + two + three) / np.float32(3))

    def test_four_are_added_in_pairs(self):
        one, two, three, four = (ordinary_values(seed, 1000) for seed in range(4))
        out = np.empty(1000, np.float32)
        dense.tree_mean(out, [one, two, three, four], range(4), 4)
        assert same_bits(out, ((one + two) + (three + four)) / np.float32(4))
        assert not same_bits(out, (one + two + three + four) / np.float32(4))

    def test_as_many_nodes_are_open_as_there_are_heights(self):
        places = [2**32 - 2**height for height in range(32, -1, -1)]
        vectors = [ordinary_values(height, 5000) for height in range(33)]
        ours, twins = np.empty(5000, np.float32), np.empty(5000, np.float32)
        dense.tree_mean(ours, vectors, places, 33)
        dense_numpy.tree_mean(twins, vectors, places, 33)
        assert same_bits(ours, twins)

    @pytest.mark.parametrize(
        ("vectors", "places", "match"),
        [
            ([], [], "0 vectors at 0 places"),
            ([8], [0, 1], "1 vectors at 2 places"),
            ([8, 8], [1, 1], "place 1 follows 1"),
            ([8, 8], [1, 0], "place 0 follows 1"),
            ([8], [-1], "place -1 follows -1"),
            ([8], [2**32], "place 4294967296"),
            ([8, 7], [0, 1], "a vector has 7 elements and out has 8"),
        ],
    )
    def test_what_does_not_fit(self, vectors, places, match):
        out = np.ones(8, np.float32)
        with pytest.raises(ValueError, match=match):
            dense.tree_mean(out, [np.zeros(count, np.float32) for count in vectors], places, 2)
        assert out.tolist() == [1.0] * 8

    def test_what_is_no_array(self):
        block, other = np.ones(16, np.float32), np.ones(8, np.float32)
        for vectors, error in (
            ([other, block[4:12]], ValueError),
            ([other, np.ones(8)], ValueError),
            ([other, block[::2]], ValueError),
            ([other, None], TypeError),
            ([other, [1.0] * 8], TypeError),
        ):
            with pytest.raises(error):
                dense.tree_mean(block[:8], vectors, [0, 1], 2)
        assert block.tolist() == [1.0] * 16
        other.flags.writeable = False
        dense.tree_mean(block[:8], [other], [3], 2)
        assert block.tolist() == [0.5] * 8 + [1.0] * 8

    @pytest.mark.parametrize("twin", [dense, dense_numpy])
    @pytest.mark.parametrize("divisor", [0, 1e-60])
    def test_divisor_that_is_zero_in_float32(self, twin, divisor):
        out = np.ones(3, np.float32)
        with pytest.raises(ZeroDivisionError, match="divisor is 0"):
            twin.tree_mean(out, [np.ones(3, np.float32)], [0], divisor)
        assert out.tolist() == [1, 1, 1]


class TestRefusals:
    @pytest.fixture(params=CHECKED_KERNELS)
    def kernel(self, request):
        return request.param

    def arrays(self, kernel):
        return {
            name: np.ones(1 if (kernel, name) in SINGLES else 8, np.float32) for name in KERNEL_ARRAYS[kernel]
        }

    def values(self, kernel):
        """Return arrays of the same sizes with other values in each, above 0 as those of slots are."""
        return {
            name: np.abs(ordinary_values(place, len(array)))
            for place, (name, array) in enumerate(self.arrays(kernel).items())
        }

    def assert_refused(self, kernel, arrays, match, error=ValueError):
        before = {name: np.array(array) for name, array in arrays.items()}
        with pytest.raises(error, match=match):
            call(dense, kernel, arrays, *usual_scalars(kernel))
        for name, array in arrays.items():
            assert np.array_equal(before[name], np.array(array)), name

    def test_dtype(self, kernel):
        for name in KERNEL_ARRAYS[kernel]:
            arrays = self.arrays(kernel) | {name: np.ones(8, np.float64)}
            self.assert_refused(kernel, arrays, "Buffer dtype mismatch")

    def test_two_dimensions(self, kernel):
        for name in KERNEL_ARRAYS[kernel]:
            arrays = self.arrays(kernel) | {name: np.ones((2, 4), np.float32)}
            self.assert_refused(kernel, arrays, "wrong number of dimensions")

    def test_non_contiguous(self, kernel):
        for name in KERNEL_ARRAYS[kernel]:
            arrays = self.arrays(kernel) | {name: np.ones(16, np.float32)[::2]}
            self.assert_refused(kernel, arrays, "contiguous")

    def test_no_array(self, kernel):
        for name in KERNEL_ARRAYS[kernel]:
            self.assert_refused(kernel, self.arrays(kernel) | {name: [1.0] * 8}, "bytes-like", TypeError)
            with pytest.raises(TypeError, match="None"):
                call(dense, kernel, self.arrays(kernel) | {name: None}, *usual_scalars(kernel))

    def test_lengths(self, kernel):
        for name in KERNEL_ARRAYS[kernel][1:]:
            for count in (0, 7, 9):
                arrays = self.arrays(kernel) | {name: np.ones(count, np.float32)}
                ending = "should have one" if (kernel, name) in SINGLES else ".* has 8"
                self.assert_refused(kernel, arrays, rf"{re.escape(name)} has {count} elements and {ending}")

    def test_alignment_below_4_bytes(self, kernel):
        for name in KERNEL_ARRAYS[kernel]:
            size = self.arrays(kernel)[name].nbytes
            odd = np.zeros(64, np.uint8)[2 : 2 + size].view(np.float32)
            self.assert_refused(
                kernel, self.arrays(kernel) | {name: odd}, f"{re.escape(name)} is not aligned to 4 bytes"
            )

    def test_read_only_where_written(self, kernel):
        for name in KERNEL_ARRAYS[kernel]:
            if not is_written(kernel, name):
                continue
            arrays = self.arrays(kernel)
            arrays[name].flags.writeable = False
            self.assert_refused(kernel, arrays, "read-only")

    @pytest.mark.parametrize(("kernel", "written", "other", "shift"), OVERLAPS)
    def test_overlap(self, kernel, written, other, shift):
        block = np.ones(30, np.float32)
        arrays = self.arrays(kernel) | {written: block[10:18], other: block[10 + shift : 18 + shift]}
        self.assert_refused(kernel, arrays, "overlap in memory")

    def test_overlap_of_a_slot_of_one_element(self):
        kernel, block = "apply ROWWISE_ADAGRAD", np.ones(30, np.float32)
        for name in ("out", "values", "gradient"):
            for place in (10, 13, 17):
                arrays = self.arrays(kernel) | {name: block[10:18], "slots[0]": block[place : place + 1]}
                self.assert_refused(kernel, arrays, "overlap in memory")
            for place in (9, 18):
                call(dense, kernel, arrays | {"slots[0]": block[place : place + 1]})

    @pytest.mark.parametrize(("kernel", "written", "other"), PAIRS)
    def test_neighbours_do_not_overlap(self, kernel, written, other):
        sizes = {name: len(array) for name, array in self.arrays(kernel).items()}
        before, after = sizes[other], sizes[written]
        for start in (8 + after, 8 - before):
            block = ordinary_values(3, 30)
            places = {written: slice(8, 8 + after), other: slice(start, start + before)}
            expected, apart = block.copy(), self.values(kernel)
            apart |= {name: block[place].copy() for name, place in places.items()}
            beside = self.values(kernel) | {name: block[place] for name, place in places.items()}
            assert_twins_agree(kernel, (beside, apart), *usual_scalars(kernel))
            for name, place in places.items():
                expected[place] = apart[name]
            assert same_bits(block, expected), "the rest of the block is untouched"

    @pytest.mark.parametrize("kernel", ["copy", *SLOTS])
    def test_exact_overlap_of_out_and_values(self, kernel):
        inside, apart = self.values(kernel), self.values(kernel)
        inside["out"] = inside["values"][:]
        call(dense, kernel, inside)
        call(dense, kernel, apart)
        assert same_bits(inside["values"], apart["out"])
        for name in apart.keys() - {"out", "values"}:
            assert same_bits(inside[name], apart[name]), name

    @pytest.mark.parametrize(
        ("step", "match"),
        [
            (b"", "step has 0 bytes, not 64"),
            (packed("SGD") + b"0", "step has 65 bytes"),
            (b"\xff\xff\xff\xff" + packed("SGD")[4:], "kind -1, which does not exist"),
            (len(Kind).to_bytes(4, "little") + packed("SGD")[4:], f"kind {len(Kind)}, which does not exist"),
            (packed("ADAM"), "0 slots were given and a step of kind ADAM has 2"),
        ],
    )
    def test_step(self, step, match):
        with pytest.raises(ValueError, match=match):
            call(dense, "apply SGD", self.arrays("apply SGD"), step)

    def test_number_of_slots(self):
        with pytest.raises(ValueError, match="3 slots were given and a step of kind ADAM has 2"):
            call(dense, "apply AMSGRAD", self.arrays("apply AMSGRAD"), packed("ADAM"))

    @pytest.mark.parametrize("twin", [dense, dense_numpy])
    @pytest.mark.parametrize("limit", [-1.0, float("nan")])
    def test_limit(self, twin, limit):
        vector = np.ones(3, np.float32)
        with pytest.raises(ValueError, match=r"limit=.* is no bound"):
            twin.clip(vector, limit)
        assert vector.tolist() == [1, 1, 1]

    @pytest.mark.parametrize("twin", [dense, dense_numpy])
    @pytest.mark.parametrize("divisor", [0, 0.0, -0.0, 1e-60])
    def test_divisor_that_is_zero_in_float32(self, twin, divisor):
        accumulator = np.ones(3, np.float32)
        with pytest.raises(ZeroDivisionError, match="divisor is 0"):
            twin.divide(accumulator, divisor)
        assert accumulator.tolist() == [1, 1, 1]


class TestMemory:
    @pytest.mark.parametrize("allocate", [aligned_empty, aligned_zeros])
    @pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64])
    def test_aligned(self, allocate, dtype):
        for count in (0, 1, 15, 17, 1000, 100_000):
            array = allocate(count, dtype)
            assert (array.shape, array.dtype) == ((count,), np.dtype(dtype))
            assert array.ctypes.data % ALIGNMENT_BYTES == 0 or count == 0
            array[:] = 1
            assert array.sum() == count

    def test_zeros(self):
        assert not aligned_zeros(1000, np.float32).any()

    def test_refusals(self):
        with pytest.raises(ValueError, match="count=-1 is negative"):
            aligned_empty(-1, np.float32)
        with pytest.raises(ValueError, match="holds Python objects"):
            aligned_zeros(1, object)


class TestCompiledModule:
    def test_loaded_is_compiled(self):
        assert MODULE_FILE.name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
        for name in dense_numpy.__all__:
            assert getattr(dense, name) is getattr(_dense, name)
            assert type(getattr(dense, name)).__name__ == "cython_function_or_method"

    def test_kinds_are_numbered_as_in_the_header(self):
        assert [kind.name for kind in Kind] == [name for name, _ in dense.kinds()]
        assert list(Kind) == list(range(len(Kind)))

    def test_step_comes_back(self):
        step = Step(kind=Kind.NADAM, decay=0.5, scalars=(0.25, 2.0))
        expected = Step(kind=Kind.NADAM, decay=0.5, scalars=(0.25, 2.0) + 12 * (0.0,))
        assert (len(step.packed), Step.unpack(step.packed)) == (STEP_BYTES, expected)
        with pytest.raises(ValueError, match="step has 1 bytes, not 64"):
            Step.unpack(b"1")

    def test_instruction_set(self):
        assert dense.instruction_set() in {"x86-64-v4", "x86-64-v3", "baseline"}

    def test_gil_is_released(self):
        """With switches at voluntary releases only, a thread advances during a call if that lets the GIL go."""
        turns, is_over = [0], threading.Event()

        def count_turns():
            while not is_over.is_set():
                turns[0] += 1
                time.sleep(0)  # gives the GIL away, waits for nothing

        values = aligned_zeros(4_000_000, np.float32)
        counter = threading.Thread(target=count_turns)
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(60)
        try:
            counter.start()
            advanced = False
            for _ in range(200):
                before = turns[0]
                dense.divide(values, 3.0)
                advanced = advanced or turns[0] > before
        finally:
            is_over.set()
            sys.setswitchinterval(interval_s)
            counter.join()
        assert advanced

    @pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
    @pytest.mark.skipif(os.uname().machine != "x86_64", reason="looks for x86-64 instructions")
    def test_no_instruction_rounds_otherwise(self):
        """A fused multiply-add or an approximate reciprocal would make the bits depend on the processor."""
        listing = subprocess.run(
            ["objdump", "--disassemble", "--no-show-raw-insn", str(MODULE_FILE)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        instructions = set(re.findall(r"^\s*[0-9a-f]+:\s+(\w+)", listing, re.MULTILINE))
        assert instructions & {"sqrtps", "vsqrtps"}, "the disassembly shows no vector square root"
        assert not {name for name in instructions if re.match(r"vfn?m(add|sub)|v?rsqrt|v?rcp", name)}

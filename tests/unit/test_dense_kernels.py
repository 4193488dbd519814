"""The compiled dense kernels: same bits as their NumPy twins on every processor, and what they refuse."""

import hashlib
import importlib.machinery
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

COUNTS = (0, 1, 15, 16, 17, 1000)
MODULE_FILE = Path(_dense.__file__)

# Arguments after the arrays come with the kernel; arrays are named as in the signature.
KERNEL_ARRAYS = {
    "copy": ("out", "values"),
    "add": ("accumulator", "gradient"),
    "divide": ("accumulator",),
    "apply_sgd": ("out", "values", "gradient"),
    "apply_momentum": ("out", "values", "momentum_slot", "gradient"),
    "apply_adam": ("out", "values", "m", "v", "gradient"),
}
KERNEL_SCALARS = {
    "copy": (),
    "add": (),
    "divide": (3.0,),
    "apply_sgd": (0.1,),
    "apply_momentum": (0.1, 0.9, True),
    "apply_adam": (0.01, 0.9, 0.999, 1e-7),
}
WRITTEN = {"out", "accumulator", "momentum_slot", "m", "v"}
PAIRS = [
    (kernel, written, other)
    for kernel, arrays in KERNEL_ARRAYS.items()
    for written in arrays
    for other in arrays
    if written in WRITTEN and written != other
]
# out may be exactly values: test_exact_overlap_of_out_and_values.
OVERLAPS = [
    (*pair, shift)
    for pair in PAIRS
    for shift in (-7, -1, 0, 1, 7)
    if not (shift == 0 and set(pair[1:]) == {"out", "values"})
]

# A busy machine may hold up any example; the number keeps the file within seconds.
examples = settings(deadline=None, max_examples=60)
floats_32 = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)
rates = st.floats(min_value=0, max_value=10, width=32)
fractions = st.floats(min_value=0, max_value=1)


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
            values = awkward_values(seed + place, count)
            values[: len(head)] = head[:count]
            made[name] = placed(values, is_shifted)
        if is_in_place and "values" in made:
            made["out"] = made["values"]
        for name in made.keys() - WRITTEN:
            made[name].flags.writeable = made[name] is made.get("out")
        return made

    return arrays(), arrays()


def assert_twins_agree(kernel, both, scalars):
    ours, twins = both
    getattr(dense, kernel)(*ours.values(), *scalars)
    getattr(dense_numpy, kernel)(*twins.values(), *scalars)
    for name, array in ours.items():
        assert same_bits(array, twins[name]), name


class TestTwins:
    @examples
    @given(calls("copy"))
    def test_copy(self, both):
        assert_twins_agree("copy", both, ())

    @examples
    @given(calls("add"))
    def test_add(self, both):
        assert_twins_agree("add", both, ())

    @examples
    @given(calls("divide"), st.one_of(st.integers(1, 1000), floats_32.filter(lambda x: x != 0)))
    def test_divide(self, both, divisor):
        assert_twins_agree("divide", both, (divisor,))

    @examples
    @given(calls("apply_sgd"), rates)
    def test_sgd(self, both, rate):
        assert_twins_agree("apply_sgd", both, (rate,))

    @examples
    @given(calls("apply_momentum"), rates, fractions, st.booleans())
    def test_momentum(self, both, rate, momentum, nesterov):
        assert_twins_agree("apply_momentum", both, (rate, momentum, nesterov))

    @examples
    @given(calls("apply_adam"), rates, fractions, fractions, st.sampled_from((1e-7, 1e-8, 1.0)))
    def test_adam(self, both, alpha, beta_1, beta_2, epsilon):
        assert_twins_agree("apply_adam", both, (alpha, beta_1, beta_2, epsilon))

    def test_known_values(self):
        accumulator = np.array([1, 2, -3], np.float32)
        dense.add(accumulator, np.array([5, 5, 5], np.float32))
        dense.divide(accumulator, 2)
        assert accumulator.tolist() == [3, 3.5, 1]
        slot, out = np.full(3, 2, np.float32), np.empty(3, np.float32)
        dense.apply_momentum(out, accumulator, slot, np.full(3, 4, np.float32), 0.5, 0.25, False)
        assert (slot.tolist(), out.tolist()) == ([-1.5] * 3, [1.5, 2, -0.5])
        dense.apply_momentum(out, accumulator, slot, np.full(3, 4, np.float32), 0.5, 0.5, True)
        assert (slot.tolist(), out.tolist()) == ([-2.75] * 3, [3 - 3.375, 3.5 - 3.375, 1 - 3.375])


class TestRefusals:
    @pytest.fixture(params=KERNEL_ARRAYS)
    def kernel(self, request):
        return request.param

    def arrays(self, kernel, count=8):
        return {name: np.ones(count, np.float32) for name in KERNEL_ARRAYS[kernel]}

    def assert_refused(self, kernel, arrays, match, error=ValueError):
        before = {name: np.array(array) for name, array in arrays.items()}
        with pytest.raises(error, match=match):
            getattr(dense, kernel)(*arrays.values(), *KERNEL_SCALARS[kernel])
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
                getattr(dense, kernel)(
                    *(self.arrays(kernel) | {name: None}).values(), *KERNEL_SCALARS[kernel]
                )

    def test_lengths(self, kernel):
        for name in KERNEL_ARRAYS[kernel][1:]:
            for count in (0, 7, 9):
                arrays = self.arrays(kernel) | {name: np.ones(count, np.float32)}
                self.assert_refused(kernel, arrays, f"{name} has {count} elements and .* has 8")

    def test_alignment_below_4_bytes(self, kernel):
        for name in KERNEL_ARRAYS[kernel]:
            odd = np.zeros(64, np.uint8)[2:34].view(np.float32)
            self.assert_refused(
                kernel, self.arrays(kernel) | {name: odd}, f"{name} is not aligned to 4 bytes"
            )

    def test_read_only_where_written(self, kernel):
        for name in WRITTEN.intersection(KERNEL_ARRAYS[kernel]):
            arrays = self.arrays(kernel)
            arrays[name].flags.writeable = False
            self.assert_refused(kernel, arrays, "read-only")

    @pytest.mark.parametrize(("kernel", "written", "other", "shift"), OVERLAPS)
    def test_overlap(self, kernel, written, other, shift):
        block = np.ones(30, np.float32)
        arrays = self.arrays(kernel) | {written: block[10:18], other: block[10 + shift : 18 + shift]}
        self.assert_refused(kernel, arrays, "overlap in memory")

    @pytest.mark.parametrize(("kernel", "written", "other"), PAIRS)
    def test_neighbours_do_not_overlap(self, kernel, written, other):
        block = np.ones(30, np.float32)
        arrays = self.arrays(kernel) | {written: block[8:16], other: block[16:24]}
        getattr(dense, kernel)(*arrays.values(), *KERNEL_SCALARS[kernel])
        arrays[other] = block[0:8]
        getattr(dense, kernel)(*arrays.values(), *KERNEL_SCALARS[kernel])

    def test_exact_overlap_of_out_and_values(self):
        for kernel in ("copy", "apply_sgd", "apply_momentum", "apply_adam"):
            arrays = self.arrays(kernel)
            arrays["out"] = arrays["values"][:]
            getattr(dense, kernel)(*arrays.values(), *KERNEL_SCALARS[kernel])

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
        for name in KERNEL_ARRAYS:
            assert getattr(dense, name) is getattr(_dense, name)
            assert type(getattr(dense, name)).__name__ == "cython_function_or_method"

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


RUN_ALL_KERNELS = """
import sys
import numpy as np
from edlz.core_ext import dense

inputs = np.load(sys.argv[1])
np.seterr(all="ignore")
results = []
for count in (0, 1, 15, 16, 17, 1000):
    for nesterov in (False, True):
        out, values, m, v, gradient = (row[:count].copy() for row in inputs)
        dense.apply_adam(out, values, m, v, gradient, 0.01, 0.9, 0.999, 1e-7)
        results += [out.copy(), m.copy(), v.copy()]
        dense.apply_momentum(out, values, m, gradient, 0.1, 0.9, nesterov)
        results += [out.copy(), m.copy()]
        dense.apply_sgd(out, values, gradient, 0.1)
        dense.add(out, v)
        dense.divide(out, 3)
        results.append(out.copy())
        dense.copy(out, gradient)
        results.append(out)
joined = np.concatenate(results)
joined[np.isnan(joined)] = np.nan
np.save(sys.argv[2], joined)
print(dense.instruction_set())
"""


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-x86_64")
@pytest.mark.skipif(dense.instruction_set() == "baseline", reason="this machine has no other variant")
def test_variants_give_the_same_bits(tmp_path):
    """The processor at hand against the oldest one that the wheel supports."""
    np.save(tmp_path / "inputs.npy", np.stack([awkward_values(seed, 1000) for seed in range(5)]))
    script = tmp_path / "run.py"
    script.write_text(RUN_ALL_KERNELS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def run(name, *prefix):
        command = [*prefix, sys.executable, str(script), str(tmp_path / "inputs.npy"), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()

    variant, bits = run("host.npy")
    old_variant, old_bits = run("old.npy", "qemu-x86_64", "-cpu", "Nehalem")
    assert (variant, old_variant) == (dense.instruction_set(), "baseline")
    assert bits == old_bits

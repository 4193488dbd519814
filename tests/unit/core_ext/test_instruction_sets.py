"""The compiled core gives the same bits on each processor: all variants of its loops, side by side in an emulator."""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from edlz.core_ext import dense

SHAPE = (6, 1000)  # out, values, gradient and three slots


def ordinary_values():
    """Numbers of many sizes, of which each order of adding makes another sum."""
    rng = np.random.default_rng(5)
    return (rng.standard_normal(SHAPE) * 10 ** rng.uniform(-2, 2, SHAPE)).astype(np.float32)


def any_values():
    """All kinds of bit patterns, denormals and NaNs among them."""
    rng = np.random.default_rng(6)
    values = rng.integers(0, 2**32, SHAPE, np.uint32)
    values[:, ::3] &= 0x807FFFFF  # denormals
    return values.view(np.float32)


RUN_ALL_KERNELS = """
import sys
import numpy as np
from edlz.core_ext import dense, ids
from edlz.core_ext.steps import Kind, Step

np.seterr(all="ignore")
results = []


def run_dense(inputs, count):
    for name, is_single in dense.kinds():
        for decay in (0, 0.1):
            out, values, gradient, *slots = (row[:count].copy() for row in inputs)
            slots = [np.abs(slot[: 1 if single else None]) for slot, single in zip(slots, is_single)]
            step = Step(kind=Kind[name], decay=decay, scalars=np.linspace(0.01, 0.99, 14)).packed
            dense.apply(step, out, values, slots, gradient)
            results.extend([out, *slots])
    dense.add(out, gradient)
    dense.divide(out, 3)
    results.append(out.copy())
    dense.scale(out, 0.7)
    dense.clip(out, 0.5)
    results.append(out.copy())
    squared_norm = dense.squared_norm(gradient)  # the sign of a NaN is nobody's promise
    results.append(np.array([squared_norm if squared_norm == squared_norm else -1.0]).view(np.float32))
    dense.tree_mean(out, [row[:count] for row in inputs[1:]], [0, 1, 3, 4, 6], 3)
    results.append(out.copy())
    dense.copy(out, gradient)
    results.append(out)


def run_sums(inputs, dim):
    places = np.arange(inputs.size // dim, dtype=np.int32) % 7
    rows = inputs.reshape(-1)[: len(places) * dim].reshape(-1, dim)
    results.append(ids.sum_rows(rows, places, 7).ravel())


for inputs in np.load(sys.argv[1]):
    for count in (1, 15, 16, 17, 1000):
        run_dense(inputs, count)
    for dim in (1, 8, 16, 20, 32, 64):
        run_sums(inputs, dim)
joined = np.concatenate(results)
joined[np.isnan(joined)] = np.nan
np.save(sys.argv[2], joined)
print(dense.instruction_set())
"""
# AVX-512 is not emulated: that variant is tested where the processor has it.
OLDER_PROCESSORS = {"x86-64-v3": "Haswell", "baseline": "Nehalem"}


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-x86_64")
@pytest.mark.skipif(dense.instruction_set() == "baseline", reason="this machine has no other variant")
def test_variants_give_the_same_bits(tmp_path):
    """The processor at hand against older ones, down to the oldest that the wheel supports."""
    np.save(tmp_path / "inputs.npy", np.stack([ordinary_values(), any_values()]))
    script = tmp_path / "run.py"
    script.write_text(RUN_ALL_KERNELS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def run(name, *prefix):
        command = [*prefix, sys.executable, str(script), str(tmp_path / "inputs.npy"), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()

    variant, bits = run("host.npy")
    assert variant == dense.instruction_set()
    for older, processor in OLDER_PROCESSORS.items():
        assert run(f"{processor}.npy", "qemu-x86_64", "-cpu", processor) == (older, bits)


ROOT = Path(__file__).parents[3]
MADE_BY_CYTHON = ROOT / "build" / "cython" / "core_ext"
SOURCES = {
    "_dense": ("dense.c",),
    "_ids": ("ids.c",),
    "_table": ("initializers.c", "region.c", "table*.c"),
}
NUMERIC_TESTS = ("dense_kernels", "id_kernels", "initializers", "optimizers", "table", "table_images")
# And what TensorFlow may use of the processor in the same run.
VARIANTS = {
    "x86-64-v3": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "baseline": {"ONEDNN_MAX_CPU_ISA": "SSE41", "TF_ENABLE_ONEDNN_OPTS": "0"},
}


@pytest.mark.slow
@pytest.mark.skipif(not MADE_BY_CYTHON.is_dir(), reason="the core was not built here")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("name", VARIANTS)
def test_numeric_tests_pass_under_each_variant(name, tmp_path):
    """Each older variant that this processor has, built alone; the newest is what all tests run."""
    newest = dense.instruction_set()
    if newest == "baseline" or newest == name:
        pytest.skip(f"all tests run {newest} here")
    build_variant(name, tmp_path)
    tests = [str(Path(__file__).with_name(f"test_{test}.py")) for test in NUMERIC_TESTS]
    environment = {
        **os.environ,
        **VARIANTS[name],
        "KERNEL_VARIANT": str(tmp_path),
        "KERNEL_VARIANT_NAME": name,
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.unit.core_ext.kernel_variant", *tests]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def build_variant(name, folder):
    """Compile the modules that have kernels, with this variant of them and no other."""
    found = re.search(r"^FLAGS = (\[.*\])$", (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)
    flags = ast.literal_eval(found[1])
    target = name if name != "baseline" else "x86-64"
    for module, patterns in SOURCES.items():
        sources = [path for pattern in patterns for path in sorted((ROOT / "core_ext").glob(pattern))]
        subprocess.run(
            [
                *("gcc", "-shared", "-fPIC", "-pthread", "-w", *flags),
                f'-DEDLZ_ONLY_VARIANT="arch={target}"',
                f'-DEDLZ_ONLY_VARIANT_NAME="{name}"',
                *("-I", ROOT / "core_ext", "-I", sysconfig.get_paths()["include"]),
                *sources,
                MADE_BY_CYTHON / f"{module}.c",
                *("-o", folder / f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"),
            ],
            check=True,
            cwd=folder,
        )

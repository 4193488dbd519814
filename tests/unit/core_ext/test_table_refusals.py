"""What embedding tables refuse, where their memory ends, and that every processor computes the same."""

import importlib.machinery
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edlz.core_ext import _table, table
from edlz.core_ext.steps import Kind
from edlz.core_ext.table import EmbeddingTable
from tests.unit.core_ext.embedding_tables import NORMAL, int64s, packed

MODULE_FILE = Path(_table.__file__)


class TestRefusals:
    @pytest.fixture
    def ours(self):
        ours = EmbeddingTable(4, [(4, 0.0)], NORMAL, 0)
        ours.apply(packed(Kind.ADAGRAD), int64s([1, 2]), np.ones((2, 4), np.float32))
        digest = ours.digest()
        yield ours
        assert (ours.row_count, ours.digest()) == (2, digest)

    @pytest.mark.parametrize(
        ("arguments", "match", "error"),
        [
            ((0, []), "dim=0 is not within 1 and 4096", ValueError),
            ((4097, []), "dim=4097 is not within 1 and 4096", ValueError),
            ((1.5, []), "float", TypeError),
            ((4, [(4, 0.0)] * 4), "4 slots; no optimizer has more than 3", ValueError),
            ((4, [(0, 0.0)]), "size of slot 0=0 is not within 1 and 4096", ValueError),
            ((4, [(4, float("nan"))]), "initial value nan of slot 0 is not finite", ValueError),
            ((4, [], NORMAL, -1), "seed=-1 is not within", ValueError),
            ((4, [], NORMAL, 2**64), "seed=18446744073709551616 is not within", ValueError),
            ((4, [], NORMAL, 0, 0), "row_limit=0 is not within", ValueError),
        ],
    )
    def test_construction(self, arguments, match, error):
        arguments += (NORMAL, 0)[max(0, len(arguments) - 2) :]
        with pytest.raises(error, match=match):
            EmbeddingTable(*arguments)

    @pytest.mark.parametrize(
        ("step", "match"),
        [
            (b"", "step has 0 bytes instead of 64"),
            (packed(Kind.ADAGRAD)[:-1], "step has 63 bytes"),
            (packed(Kind.SGD), "kind 0 needs 0 slots, the table has 1"),
            (packed(Kind.ADAM), "kind 3 needs 2 slots, the table has 1"),
            (packed(Kind.ROWWISE_ADAGRAD), "kind 6 needs 1 elements in slot 0, the table has 4"),
            (np.int32(len(Kind)).tobytes() + bytes(60), f"step is of kind {len(Kind)}; there are kinds 0 to"),
            (np.int32(-1).tobytes() + bytes(60), "step is of kind -1"),
        ],
    )
    def test_step(self, ours, step, match):
        with pytest.raises(ValueError, match=match):
            ours.apply(step, int64s([1]), np.ones(4, np.float32))

    def test_step_that_is_no_bytes(self, ours):
        for step in (None, bytearray(64), "x" * 64):
            with pytest.raises(TypeError):
                ours.apply(step, int64s([1]), np.ones(4, np.float32))

    @pytest.mark.parametrize(
        ("ids", "match"),
        [
            (np.ones(2, np.int32), "ids has elements of format 'i'; give int64"),
            (np.ones(2, np.uint64), "ids has elements of format 'L'; give int64"),
            (np.ones(2, ">i8"), "ids has elements of format '>q'; give int64"),
            (np.ones(2, np.float64), "ids has elements of format 'd'; give int64"),
            (np.ones((2, 1), np.int64), "ids has 2 dimensions; give one"),
            (np.ones(4, np.int64)[::2], "ids must be C-contiguous"),
            (np.zeros(24, np.uint8)[1:17].view(np.int64), "ids is not aligned to 8 bytes"),
        ],
    )
    def test_ids(self, ours, ids, match):
        rows = np.ones((2, 4), np.float32)
        for call in (lambda: ours.gather(ids, rows), lambda: ours.apply(packed(Kind.ADAGRAD), ids, rows)):
            with pytest.raises(ValueError, match=match):
                call()
        with pytest.raises(ValueError, match=match):
            ours.index(ids)

    @pytest.mark.parametrize(
        ("rows", "match"),
        [
            (np.ones(7, np.float32), r"has shape \(7,\) for 2 ids of dim 4; give \(2, 4\) or \(8,\)"),
            (np.ones(9, np.float32), r"has shape \(9,\)"),
            (np.ones((4, 2), np.float32), r"has shape \(4, 2\)"),
            (np.ones((2, 2, 2), np.float32), r"has shape \(2, 2, 2\)"),
            (np.ones(0, np.float32), r"has shape \(0,\)"),
            (np.ones(8, np.float64), "has elements of format 'd'; give float32"),
            (np.ones((4, 4), np.float32)[::2], "must be (writable and )?C-contiguous"),
            (np.zeros(48, np.uint8)[2:34].view(np.float32), "is not aligned to 4 bytes"),
        ],
    )
    def test_rows(self, ours, rows, match):
        step, ids, good = packed(Kind.ADAGRAD), int64s([1, 2]), np.ones((2, 4), np.float32)
        for name, call in (
            ("out", lambda: ours.gather(ids, rows)),
            ("gradients", lambda: ours.apply(step, ids, rows)),
            ("before", lambda: ours.apply(step, ids, good, rows)),
        ):
            with pytest.raises(ValueError, match=f"^{name} {match}"):
                call()

    def test_read_only_where_written(self, ours):
        rows = np.ones((2, 4), np.float32)
        rows.flags.writeable = False
        with pytest.raises(ValueError, match="out must be writable"):
            ours.gather(int64s([1, 2]), rows)
        with pytest.raises(ValueError, match="before must be writable"):
            ours.apply(packed(Kind.ADAGRAD), int64s([1, 2]), np.ones((2, 4), np.float32), rows)

    def test_no_array(self, ours):
        for call in (
            lambda: ours.gather([1], np.ones(4, np.float32)),
            lambda: ours.gather(int64s([1]), None),
            lambda: ours.apply(packed(Kind.ADAGRAD), None, np.ones(4, np.float32)),
            lambda: ours.index(None),
            lambda: ours.extend("x"),
        ):
            with pytest.raises(TypeError):
                call()

    def test_overlap(self, ours):
        block = np.ones(16, np.float32)
        ids = block[:4].view(np.int64)
        with pytest.raises(ValueError, match="ids and out overlap"):
            ours.gather(ids, block[3:11])
        with pytest.raises(ValueError, match="gradients and before overlap"):
            ours.apply(packed(Kind.ADAGRAD), int64s([1, 2]), block[0:8], block[7:15])
        ours.gather(ids, block[4:12])

    def test_foreign_buffers(self, ours):
        """What came from the network is bytes, read only."""
        out, wanted = np.empty(8, np.float32), np.empty(8, np.float32)
        ids = int64s([1, 9])
        ours.gather(ids, wanted)
        ours.gather(memoryview(ids.tobytes()).cast("q"), out)
        assert np.array_equal(out, wanted)


class TestMemory:
    def test_row_limit(self):
        ours = EmbeddingTable(4, [], NORMAL, 0, row_limit=10)
        step = packed(Kind.SGD)
        ours.apply(step, np.arange(8), np.ones((8, 4), np.float32))
        digest = ours.digest()
        with pytest.raises(MemoryError, match="12 more rows after 8 exceed the 10 of 24 bytes"):
            ours.apply(step, np.arange(12), np.ones((12, 4), np.float32))
        with pytest.raises(MemoryError, match="3 more rows after 8 exceed the 10"):
            ours.extend(3)
        assert (ours.row_count, ours.digest()) == (8, digest)
        assert ours.apply(step, np.arange(10), np.ones((10, 4), np.float32)) == 2
        assert ours.apply(step, np.arange(10), np.ones((10, 4), np.float32)) == 0

    def test_address_space_runs_out(self):
        """Tables share what there is; the one too many is refused, the others go on."""
        script = """
import resource
import numpy as np
from edlz.core_ext.steps import Kind, Step
from edlz.core_ext.table import EmbeddingTable, Initializer
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), used + (256 << 20)))
tables = []
try:
    while len(tables) < 100:
        tables.append(EmbeddingTable(16, [], Initializer("constant", 1.0), 0))
except MemoryError as error:
    print(len(tables) > 0, error)
step, ids = Step(kind=Kind.SGD, decay=0, scalars=(1.0,)).packed, np.arange(1000)
for table in tables:
    assert table.apply(step, ids, np.ones((1000, 16), np.float32)) == 1000
try:
    tables[0].extend(tables[0].row_limit + 1)
except MemoryError as error:
    print(error)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert re.match(r"True no address space for an embedding table with rows of 64 bytes", lines[0])
        assert re.match(r"up to \d+ more rows after 1000 exceed the \d+ of 72 bytes", lines[1])

    def test_a_table_costs_what_is_in_it(self):
        """Reserved address space is no memory, and a thousand small tables are small."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tables = [EmbeddingTable(16, [], NORMAL, seed) for seed in range(100)]
        for one in tables:
            one.apply(packed(Kind.SGD), np.arange(10), np.ones((10, 16), np.float32))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10  # KiB


class TestCompiledModule:
    def test_loaded_is_compiled(self):
        assert MODULE_FILE.name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
        assert table.EmbeddingTable is _table.EmbeddingTable
        assert table.TableImage is _table.TableImage

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


RUN_TABLES = """
import numpy as np
from edlz.core_ext.steps import Kind, Step
from edlz.core_ext.table import EmbeddingTable, Initializer

scalars = (0.125, 0.9, 0.1, 0.2, 0.75, 0.6, 0.3, 0.7, 0.4)
for kind, slots in ((Kind.SGD, 0), (Kind.ADAGRAD, 1), (Kind.ADAM, 2)):
    for distribution in ("uniform", "normal", "truncated_normal"):
        for dim in (16, 100):
            table = EmbeddingTable(dim, [(dim, 0.5)] * slots, Initializer(distribution, -0.5, 1.0), 3)
            ids = np.arange(200) * 12345678901234567
            gradients = (np.arange(200 * dim, dtype=np.float32) % 17 - 8) / 3
            for _ in range(2):
                table.apply(Step(kind=kind, decay=0.01, scalars=scalars).packed, ids, gradients)
            print(table.digest())
"""


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-x86_64")
def test_variants_give_the_same_bits():
    """The processor at hand against the oldest one that the wheel supports."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def run(*prefix):
        command = [*prefix, sys.executable, "-c", RUN_TABLES]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    digests = run()
    assert len(set(digests.split())) == 18
    assert run("qemu-x86_64", "-cpu", "Nehalem") == digests

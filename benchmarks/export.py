"""The export of a model with a large table: CPU time and memory, beside what is wanted.

The table has 10M rows of 16 with random ids, written by two partitions with Adagrad's sums.  It is exported twice: by a
process of its own from a checkpoint, and by the worker of a job that has trained all rows once, at its end.  CPU time is
the first one's own, the import of TensorFlow included, and what the worker takes from the lease to the export's end;
memory is the peak above what the process has after its imports, and before the export.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.rows import Row
from benchmarks.supervised_job import POLL_S, SupervisedJob
from edlz.api.recordio import Writer
from edlz.core_ext.ids import partition_of
from edlz.services.configuration.job_config import JobConfig
from edlz.services.export.about import read_about
from edlz.services.master.planning import make_plan
from edlz.services.protocol.layout import slice_bounds
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.storage.checkpoint_writing import Finished, write_manifest, write_part
from edlz.services.storage.state import MemoryRows, State
from edlz.services.storage.whole_cut import WholeCut

__all__ = ["measure"]

ROWS, PARTITIONS = 10_000_000, 2
IDS, DIM = 26, 16  # export_model's
MODEL = Path(__file__).with_name("export_model.py")  # not imported: it imports TensorFlow
MOST_CPU_S, MOST_MB = 20.0, 350.0
_EXPORT, _FILL = "export", "fill"


def measure() -> list[Row]:
    """Measure both exports; takes about three minutes, 4 GB of memory and 4 GB of disk."""
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        _run(_FILL, folder)
        found = json.loads(_run(_EXPORT, folder).splitlines()[-1])
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        of_job = asyncio.run(_export_of_job(Path(folder)))
    what = f"{ROWS // 10**6}M rows of {DIM}"
    return [*_rows(f"export of {what}", found), *_rows(f"export of {what} at a job's end", of_job)]


def _rows(what: str, found: dict[str, float]) -> list[Row]:
    return [
        Row(
            f"{what}: CPU time / wanted",
            f"{found['cpu_s']:.1f} s",
            f"wanted {MOST_CPU_S:.0f} s",
            found["cpu_s"] / MOST_CPU_S,
            1.0,
            False,
        ),
        Row(
            f"{what}: peak of memory above what was there / wanted",
            f"{found['memory_mb']:.0f} MB",
            f"wanted {MOST_MB:.0f} MB",
            found["memory_mb"] / MOST_MB,
            1.0,
            False,
        ),
    ]


def _run(what: str, folder: str) -> str:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", "benchmarks.export", what, folder]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def _config(folder: Path) -> JobConfig:
    return JobConfig(model_file=str(MODEL), training_data=str(folder / "data"), worker_threads=1)


def _fill(folder: Path) -> None:
    """Write a checkpoint of the model."""
    from edlz.services.worker.engine.feed.task_reader import TaskReader
    from edlz.services.worker.engine.model.job_model import JobModel
    from edlz.services.worker.engine.model.model_updates import ModelUpdates

    with Writer(folder / "data") as writer:
        writer.write(b"1")
    config = _config(folder)
    plan = make_plan(config)
    model = JobModel(config, plan, TaskReader(plan))
    updates = ModelUpdates(model.contract, model.built, plan)
    dense, state, counters = model.built.initial_vectors()
    draw = np.random.default_rng(7)
    ids = draw.permutation(np.unique(draw.integers(-(2**63), 2**63 - 1, ROWS, np.int64)))
    rows = draw.standard_normal((len(ids), 2 * DIM), np.float32)
    owners = partition_of(ids, PARTITIONS)
    infos = []
    for partition in range(PARTITIONS):
        lo, hi = slice_bounds(len(dense), partition, PARTITIONS)
        own = owners == partition
        part = State(
            plan_hash=plan.hash,
            base_digest="",
            partition=partition,
            partitions=PARTITIONS,
            layout=model.built.layout,
            optimizer=updates.optimizer,
            era=(1, 1),
            version=1,
            iterations=1,
            ledger=LedgerRecord(),
            counts=np.zeros(plan.task_count, np.int32),
            dense=dense[lo:hi],
            state=state,
            counters=counters,
            slots={},
            tables=updates.tables,
            rows=(MemoryRows(ids[own], rows[own]),),
        )
        info = write_part(folder, part, version=1, number=1, run="r", tag="a")
        assert info is not None
        infos.append(info)
    finished = Finished(job="j", run="r", mode="sync", number=1, epoch=1, minibatches=0)
    write_manifest(folder, 1, infos, finished, tag="a")


def _export(folder: Path) -> None:
    """Export it; print what that took."""
    from edlz.services.export import exporter, loaded_model, saved_model

    del loaded_model, saved_model
    config = _config(folder)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before_mb = pages * resource.getpagesize() / 2**20  # what it has now, not the peak of the imports
    with WholeCut.of_checkpoint(folder / "version-1") as cut:
        exporter.export_model(config, make_plan(config), cut, exporter.Export(output=folder / "out"))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(json.dumps({"cpu_s": time.process_time(), "memory_mb": peak_mb - before_mb}))


# -- at the end of a job


async def _export_of_job(folder: Path) -> dict[str, float]:
    """Train all rows once; return what the export takes its worker."""
    with Writer(folder / "data") as writer:
        for number in range(-(-ROWS // IDS)):
            writer.write(b"%d" % number)
    flags = [f"--model_file={MODEL}", f"--training_data={folder / 'data'}", f"--output={folder / 'out'}"]
    flags += [f"--num_ps_pods={PARTITIONS}", "--num_workers=1", "--minibatch_size=4096", "--progress=plain"]
    async with SupervisedJob(folder / "home", flags) as job:
        await job.watch_event("export of v")
        taken = _Taken(job.pid("worker-0"))
        while "exported: " not in job.log("master"):
            taken.look()  # raises if it has ended
            await asyncio.sleep(POLL_S)
    about = read_about(folder / "out" / "1")
    assert about is not None
    assert [(table.rows, table.dim) for table in about.tables] == [(-(-ROWS // IDS) * IDS, DIM)]
    return {"cpu_s": taken.cpu_s, "memory_mb": taken.memory_mb}


class _Taken:
    """What a process takes from now on (Linux)."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")  # the peak of memory is counted anew
        self._began_s, self._began_mb = self._cpu_s(), self._mb("VmRSS")
        self.cpu_s = self.memory_mb = 0.0

    def look(self) -> None:
        self.cpu_s, self.memory_mb = self._cpu_s() - self._began_s, self._mb("VmHWM") - self._began_mb

    def _cpu_s(self) -> float:
        """Return the CPU time of all its threads, those that have ended too."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _mb(self, name: str) -> float:
        lines = (self._folder / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) / 2**10


if __name__ == "__main__":
    {_EXPORT: _export, _FILL: _fill}[sys.argv[1]](Path(sys.argv[2]))

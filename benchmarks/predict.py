"""How long `edlz predict` takes beside `edlz evaluate` on the same records, once the model is built.

200,000 records of census data, a model with two embedding tables, one worker and one parameter server.  The two take
turns, and the medians are compared.  A task of either pulls its rows once; predicting writes a file for each task as well.
"""

import re
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from statistics import median

from benchmarks.processes import quiet_environment
from benchmarks.rows import Row
from edlz.api.recordio import Reader, Writer
from edlz.model_zoo import datasets
from edlz.services.predictions.output import read_manifest

__all__ = ["measure"]

RECORDS, TURNS = 200_000, 3
MOST = 1.3  # times as long
JOB_S = 600.0
MODEL = ("--model_def=census.wide_deep.custom_model", "--num_workers=1", "--progress=plain")
_TIME = re.compile(r"^\[([\d: ,-]+)\]")


def measure() -> list[Row]:
    """Measure both; takes about two minutes on a quiet machine."""
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as name:
        folder = Path(name)
        data = _data(folder)
        checkpoints = folder / "checkpoints"
        saving = (f"--checkpoint_dir={checkpoints}", "--checkpoint_steps=100000")
        _run(folder, "train", "trained", f"--training_data={data}/small", *saving)
        begin = f"--checkpoint_dir_for_init={checkpoints}"
        evaluated, predicted = [], []
        for turn in range(TURNS):
            labelled = f"--validation_data={data}/large"
            evaluated.append(_run(folder, "evaluate", f"evaluated-{turn}", labelled, begin))
            out = folder / f"out-{turn}"
            given = (f"--prediction_data={data}/large", f"--prediction_output={out}")
            predicted.append(_run(folder, "predict", f"predicted-{turn}", *given, begin))
            manifest = read_manifest(out)
            assert manifest is not None
            assert manifest.records == RECORDS
    ours, theirs = median(predicted), median(evaluated)
    return [
        Row(
            f"predict {RECORDS // 1000}k records / evaluate them",
            f"{ours:.1f} s",
            f"{theirs:.1f} s",
            ours / theirs,
            MOST,
            False,
        )
    ]


def _data(folder: Path) -> Path:
    """Make a small data set, and a large one of its records."""
    source = Path(datasets.__file__).parent / "data"
    datasets.convert("adult", source, folder / "adult", records_per_shard=10_000, fraction=1.0)
    (shard,) = sorted((folder / "adult" / "test").iterdir())[:1]
    with Reader(shard) as reader:
        records = reader.read(0, len(reader))
    for name, count in (("small", len(records)), ("large", RECORDS)):
        (folder / name).mkdir()
        with Writer(folder / name / "part-0") as writer:
            for number in range(count):
                writer.write(records[number % len(records)])
    return folder


def _run(folder: Path, command: str, job: str, *flags: str) -> float:
    """Run a job; return the seconds from its model's being built to its end."""
    words = [sys.executable, "-m", "edlz.client", command, f"--job_name={job}", *MODEL, *flags]
    environment = quiet_environment(EDLZ_HOME=str(folder / "home"))
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=JOB_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} failed\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    logs = folder / "home" / "jobs" / job / "logs"
    return _when(logs / "master.log", "job complete") - _when(logs / "worker-0.log", "model built")


def _when(log: Path, text: str) -> float:
    line = next(line for line in log.read_text().splitlines() if text in line)
    found = _TIME.match(line)
    assert found is not None, line
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()

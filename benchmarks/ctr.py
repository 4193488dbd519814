"""A click-through model: a job with one worker and one parameter server beside TensorFlow with none.

The model (ctr_model.py) looks up 26 of 1M rows of 16 numbers and trains with Adagrad, asynchronously.  Four
contenders take turns, each in processes of its own with one TensorFlow thread: the job; TensorFlow alone, the
embedding a variable; what a worker has to compute with rows that lie there already; and TensorFlow's own
ParameterServerStrategy, where `EDLZ_BENCH_TF215` names a Python with TensorFlow 2.15.  All read the same
records: the job by a feed as users write it, the others by the fewest operations that tf.data can do it with.  Whoever computes gradients is held to processor 0, all others to processor 1.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ctr_data import write_records
from benchmarks.local_job import run_job
from benchmarks.processes import pinned, quiet_environment
from benchmarks.rows import Row, Skipped

__all__ = ["measure"]

ROUNDS = 3
RECORDS, EPOCHS = 131_072, 5  # all rows are made in the first one, which does not count
LOG_EVERY = {512: 64, 4_096: 8}  # minibatch size: steps between two lines of the worker's log
LEAST_OF_ALONE, MOST_OF_FLOOR, LEAST_OF_STRATEGY = 0.85, 1.2, 1.2
STRATEGY_PYTHON = "EDLZ_BENCH_TF215"
NEVER_S = 3_600
HERE = Path(__file__).parent


@dataclass(frozen=True)
class _Speed:
    examples_per_s: float
    step_cpu_s: float


_Speeds = dict[str, list[_Speed]]  # by contender and minibatch size


def measure() -> list[Row | Skipped]:
    """Run all contenders in turn; takes about five minutes."""
    python = os.environ.get(STRATEGY_PYTHON)
    speeds: _Speeds = {}
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        place = Path(folder)
        data = place / "records"
        write_records(data, RECORDS)
        for number in range(ROUNDS):
            for name, speed in _alone(data).items():
                speeds.setdefault(name, []).append(speed)
            for size in LOG_EVERY:
                speeds.setdefault(f"job {size}", []).append(_job(place / f"{number}-{size}", data, size))
            if python:
                for name, speed in _strategy(python, data.with_suffix(".raw")).items():
                    speeds.setdefault(name, []).append(speed)
    return [row for size in LOG_EVERY for row in _rows(speeds, size)]


def _rows(speeds: _Speeds, size: int) -> list[Row | Skipped]:
    job, alone = _rate(speeds, f"job {size}"), _rate(speeds, f"alone {size}")
    job_cpu_s, floor_cpu_s = _cpu_s(speeds, f"job {size}"), _cpu_s(speeds, f"floor {size}")
    share = size * _rate(speeds, f"reading {size}") ** -1 / (size / alone)
    label = f"CTR, batch {size}"
    return [
        Row(
            f"{label}, 1 worker + 1 ps: edlz / TensorFlow alone",
            _k(job),
            f"TensorFlow, no ps {_k(alone)} (reading {share:.0%})",
            job / alone,
            LEAST_OF_ALONE,
            True,
        ),
        Row(
            f"{label}, worker CPU a step: edlz / gradients alone",
            f"{job_cpu_s * 1e3:.2f} ms",
            f"rows lie there {floor_cpu_s * 1e3:.2f} ms",
            job_cpu_s / floor_cpu_s,
            MOST_OF_FLOOR,
            False,
        ),
        _strategy_row(speeds, f"{label}: edlz / ParameterServerStrategy", job, f"strategy {size}"),
    ]


def _strategy_row(speeds: _Speeds, measure: str, job: float, name: str) -> Row | Skipped:
    if name not in speeds:
        return Skipped(measure, f"set {STRATEGY_PYTHON} to a Python with TensorFlow 2.15")
    strategy = _rate(speeds, name)
    return Row(measure, _k(job), f"TensorFlow 2.15 {_k(strategy)}", job / strategy, LEAST_OF_STRATEGY, True)


def _rate(speeds: _Speeds, name: str) -> float:
    return statistics.median(speed.examples_per_s for speed in speeds[name])


def _cpu_s(speeds: _Speeds, name: str) -> float:
    return statistics.median(speed.step_cpu_s for speed in speeds[name])


def _k(examples_per_s: float) -> str:
    return f"{examples_per_s / 1e3:.1f} k examples/s"


# ---------------------------------------------------------------- contenders


def _alone(data: Path) -> dict[str, _Speed]:
    arguments = ["-m", "benchmarks.ctr_alone", str(data), *map(str, LOG_EVERY)]
    # oneDNN is asked for as the worker asks for it: TensorFlow's default is slower on some machines.
    printed = _printed([sys.executable, *arguments], {0}, {"TF_ENABLE_ONEDNN_OPTS": "1"})
    return {name: _Speed(**speed) for name, speed in json.loads(printed).items()}


def _strategy(python: str, records: Path) -> dict[str, _Speed]:
    command = [
        python,
        str(HERE / "ctr_strategy.py"),
        str(records),
        *map(str, _free_ports(3)),
        *map(str, LOG_EVERY),
    ]
    speeds = json.loads(_printed(command, {0, 1}, {}))
    return {f"strategy {size}": _Speed(rate, 0.0) for size, rate in speeds.items()}


def _printed(command: list[str], processors: set[int], extra: Mapping[str, str]) -> str:
    """Run a command and return the last line that it prints."""
    environment = quiet_environment(**extra)
    done = subprocess.run(
        pinned(command, processors), env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.splitlines()[-1]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [listening.getsockname()[1] for listening in sockets]
    finally:
        for listening in sockets:
            listening.close()


def _job(folder: Path, data: Path, size: int) -> _Speed:
    flags = [
        f"--model_file={HERE / 'ctr_model.py'}",
        f"--training_data={data}",
        "--use_async",
        f"--num_epochs={EPOCHS}",
        f"--minibatch_size={size}",
        "--worker_threads=1",
        f"--log_loss_steps={LOG_EVERY[size]}",
        f"--recovery_snapshot_secs={NEVER_S}",
    ]
    speed = run_job(folder, flags, from_step=RECORDS // size)
    return _Speed(speed.steps_per_s * size, speed.step_cpu_s)

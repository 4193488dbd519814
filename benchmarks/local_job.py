"""A job of real processes on this machine, run to its end, and how fast its first worker went."""

import re
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from benchmarks.processes import cpu_s, peak_memory_bytes, start

__all__ = ["Speed", "run_job"]

JOB_S, POLL_S = 300.0, 0.05
LOG_TAIL = 3_000
_LOSS = re.compile(r"^\[([\d: ,-]+)\].*Loss = \S+ steps = (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Speed:
    """Minibatches a second, and the worker's CPU time for each, in seconds; and the most memory that a worker had."""

    steps_per_s: float
    step_cpu_s: float
    peak_bytes: int


def run_job(
    folder: Path,
    flags: Sequence[str],
    *,
    from_step: int,
    workers: Sequence[Collection[int]] = ({0},),
    others: Collection[int] = (1,),
    is_group: bool = False,
) -> Speed:
    """Run a job with one parameter server, or none, and return the speed of worker 0, from its own log lines.

    Parameters
    ----------
    folder : Path
        Made for the job; its path must be short.
    flags : sequence of str
        The job's, as the master takes them; `--log_loss_steps` says how finely the speed is known.
    from_step : int
        Where it begins to count.
    workers : sequence of collections of int
        The processors of each worker.
    others : collection of int
        The processors of master and parameter server.
    is_group : bool
        Whether the workers train without a parameter server.

    Raises
    ------
    RuntimeError
        If a process fails, or the job does not end.
    """
    folder.mkdir()
    master, job = f"ipc://{folder}/m", f"--job_dir={folder}"
    strategy = "--distribution_strategy=AllreduceStrategy" if is_group else "--num_ps_pods=1"
    services = {"master": (["edlz.services.master", f"--endpoint={master}", job, strategy, *flags], others)}
    if not is_group:
        ps = ["--ps_id=0", f"--endpoint=ipc://{folder}/p", f"--master_addr={master}", job]
        services["ps"] = (["edlz.services.ps", *ps], others)
    for number, processors in enumerate(workers):
        arguments = ["edlz.services.worker", f"--worker_id={number}", f"--master_addr={master}"]
        arguments += [f"--endpoint=ipc://{folder}/{number}"] if is_group else []
        services[f"worker-{number}"] = (arguments, processors)
    processes = {
        name: start(folder / f"{name}.log", arguments, processors)
        for name, (arguments, processors) in services.items()
    }
    try:
        samples, peak_bytes = _wait(folder, processes)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    points = _points((folder / "worker-0.log").read_text(), from_step)
    if len(points) < 2:
        raise RuntimeError(f"worker 0 did not log two losses from step {from_step} on\n{_logs(folder)}")
    return _speed(points, samples, peak_bytes)


def _wait(
    folder: Path, processes: dict[str, subprocess.Popen[bytes]]
) -> tuple[list[tuple[float, float]], int]:
    """Wait for the job's end; return (time, CPU seconds so far) of worker 0, as long as it ran, and the workers' peak memory."""
    samples, peak_bytes = [], 0
    workers = [process for name, process in processes.items() if name.startswith("worker-")]
    end = time.monotonic() + JOB_S
    while any(process.poll() is None for process in processes.values()):
        if time.monotonic() > end or any(process.returncode for process in processes.values()):
            raise RuntimeError(f"the job failed or does not end within {JOB_S:.0f} s\n{_logs(folder)}")
        if processes["worker-0"].returncode is None:
            samples.append((time.time(), cpu_s(processes["worker-0"].pid)))
        peak_bytes = max([peak_bytes, *(peak_memory_bytes(worker.pid) for worker in workers)])
        time.sleep(POLL_S)
    return samples[:-1], peak_bytes  # the last one may be of a process that has lost its threads


def _logs(folder: Path) -> str:
    return "\n".join(f"--- {path.name}\n{path.read_text()[-LOG_TAIL:]}" for path in folder.glob("*.log"))


def _points(log: str, from_step: int) -> list[tuple[float, int]]:
    """Return (time, step) of the lines that tell a loss."""
    return [
        (datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp(), int(step))
        for when, step in _LOSS.findall(log)
        if int(step) >= from_step
    ]


def _speed(points: list[tuple[float, int]], samples: list[tuple[float, float]], peak_bytes: int) -> Speed:
    (began_s, first), (ended_s, last) = points[0], points[-1]
    times_s, cpu_times_s = np.array(samples).T
    began_cpu_s, ended_cpu_s = np.interp(np.array([began_s, ended_s]), times_s, cpu_times_s)
    steps = last - first
    return Speed(steps / (ended_s - began_s), float(ended_cpu_s - began_cpu_s) / steps, peak_bytes)

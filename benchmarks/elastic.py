"""Two jobs on one machine: a gang each, one after the other, against both at once on shared slots.

The machine has 5 slots, each job wants 3 workers, and the second one comes when the first has made its first step.

    gang      a job starts when all of its workers have room: the second waits for the end of the first.  The
              benchmark itself makes it wait; edlz has no such mode.
    elastic   both run with --local_slots, the second with the higher priority: it takes the two free slots and
              one of the first job's, which gets it back at the end.

The workers do not compute, they wait: each record takes their feed 20 ms of sleep (elastic_model.py), as if it
came over a slow network.  So the processors of a small machine are not what jobs share, only the slots are, and
3 workers read 3 times as fast as one.  What is real is everything that elasticity costs: starting and stopping
workers, giving back their tasks, passing slots on.  In asynchronous mode, where a worker more or less is as
much speed more or less at once.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import quiet_environment
from benchmarks.rows import Row
from edlz.model_zoo.datasets import built_in_sample

__all__ = ["Times", "measure", "run_two_jobs"]

SLOTS, WORKERS = 5, 3
MINIBATCH, MINIBATCHES_PER_TASK = 8, 8
JOB_S, LEAVE_S, POLL_S = 300.0, 30.0, 0.05
LOG_TAIL = 3_000
MODEL = Path(__file__).parent / "elastic_model.py"
_FIRST_STEP = re.compile(r"Loss = \S+ steps = ")


@dataclass(frozen=True)
class Times:
    """In seconds.

    Attributes
    ----------
    both_s : from the start of the first job until both are done
    wait_s : from when the second job comes until its first step
    """

    both_s: float
    wait_s: float


def measure() -> list[Row]:
    """Run both jobs in both ways.

    Returns
    -------
    list of Row
    """
    with tempfile.TemporaryDirectory(prefix="edlz-bench-") as folder:
        place = Path(folder)
        data = built_in_sample(place / "data") / "train"
        gang = run_two_jobs(place / "gang", data, is_elastic=False)
        elastic = run_two_jobs(place / "elastic", data, is_elastic=True)
    return [
        Row(
            f"two jobs of {WORKERS} waiting workers, {SLOTS} slots, until both end",
            f"{elastic.both_s:.0f} s, elastic",
            f"{gang.both_s:.0f} s, gangs",
            elastic.both_s / gang.both_s,
            0.8,
            False,
        ),
        Row(
            "same, the second job's first step",
            f"{elastic.wait_s:.0f} s after it came",
            f"{gang.wait_s:.0f} s, gangs",
            elastic.wait_s / gang.wait_s,
            0.6,
            False,
        ),
    ]


def run_two_jobs(home: Path, data: Path, *, is_elastic: bool, flags: Sequence[str] = ()) -> Times:
    """Run two equal jobs, the second from the first one's first step on.

    Parameters
    ----------
    home : made for them, as their EDLZ_HOME
    data : the folder of their records
    is_elastic : at once on shared slots; otherwise one after the other
    flags : further ones, for both

    Raises
    ------
    RuntimeError
        If a job fails, or does not end.
    """
    home.mkdir()
    names = ("first", "second")
    own = {name: [*flags, f"--training_data={data}"] for name in names}
    if is_elastic:
        for name, priority in zip(names, ("low", "high"), strict=True):
            own[name] += [f"--local_slots={SLOTS}", f"--worker_pod_priority={priority}"]
    began_s = time.monotonic()
    with _job(home, "first", own["first"]) as first:
        first.wait_for(first.has_stepped, "make a step")
        came_s = time.monotonic()
        if not is_elastic:
            first.wait_for(first.has_ended, "end")
        with _job(home, "second", own["second"]) as second:
            second.wait_for(second.has_stepped, "make a step")
            stepped_s = time.monotonic()
            second.wait_for(second.has_ended, "end")
            first.wait_for(first.has_ended, "end")
    return Times(time.monotonic() - began_s, stepped_s - came_s)


class _Job:
    """An `edlz train` that runs, and what it has printed."""

    def __init__(self, name: str, log: Path, process: subprocess.Popen[bytes]) -> None:
        self._name, self._log, self._process = name, log, process

    def has_stepped(self) -> bool:
        return _FIRST_STEP.search(self._log.read_text()) is not None

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + JOB_S
        while not condition():
            if time.monotonic() > end_s:
                raise RuntimeError(
                    f"the {self._name} job does not {what} within {JOB_S:.0f} s\n{self._tail()}"
                )
            if self.has_ended() and not condition():
                raise RuntimeError(f"the {self._name} job ended and did not {what}\n{self._tail()}")
            time.sleep(POLL_S)
        if self._process.returncode:
            raise RuntimeError(f"the {self._name} job failed\n{self._tail()}")

    def _tail(self) -> str:
        return self._log.read_text()[-LOG_TAIL:]


@contextmanager
def _job(home: Path, name: str, flags: Sequence[str]) -> Iterator[_Job]:
    """Start a job; at the end nothing of it is left."""
    command = [sys.executable, "-m", "edlz.client", "train", f"--job_name={name}", "--progress=plain"]
    command += [f"--model_file={MODEL}", "--use_async", "--worker_threads=1", "--log_loss_steps=1"]
    command += [f"--num_workers={WORKERS}", f"--minibatch_size={MINIBATCH}"]
    command += [f"--num_minibatches_per_task={MINIBATCHES_PER_TASK}", *flags]
    log = home / f"{name}.txt"
    users_own = {variable: "" for variable in os.environ if variable.startswith("EDLZ_")}
    environment = quiet_environment(**{**users_own, "EDLZ_HOME": str(home)})
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        yield _Job(name, log, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)  # so that it takes its services with it
        try:
            process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

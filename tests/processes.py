"""Real jobs of real processes on this machine, for the cluster and fault tests.

A job's processes are started by hand, as a user would in several terminals, on ipc addresses in a folder of
their own; every wait is for a condition and has an end; nothing is left behind.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.processes import services_of
from edlz.client.local.job_lock import lock_holder
from edlz.client.local.master_line import MasterAddress, ask_all, ask_master
from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.journal.journal import Journal
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import JobStatus, StatusRequest
from edlz.services.protocol.ledger import Ledger
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Job
from edlz.services.storage.replica_files import ReplicaFiles
from edlz.services.storage.snapshots import SnapshotFolder
from edlz.services.storage.state import State

__all__ = ["END_S", "MODELS", "HandJob", "TrainJob", "check_exactly_once", "wait_for"]

MODELS = Path(__file__).parent / "unit" / "models"
START_S, END_S = 120.0, 240.0
# Its terminal is its standard input; it is not there before there is a session.
_IN_ITS_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def wait_for(condition: Callable[[], Any], what: str | Callable[[], str], timeout_s: float = START_S) -> Any:
    """Return the condition's first true value; fail with `what`, as it is then, when it does not come."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout_s:.0f}s: {what if isinstance(what, str) else what()}")


class HandJob:
    """A job whose processes the test starts one by one."""

    def __init__(self, folder: Path, *master_flags: str, partitions: int = 1, name: str = "test") -> None:
        self.folder, self.name, self.partitions = folder, name, partitions
        # Unix sockets' paths must be short, and pytest's folders are not.
        self._sockets = Path(tempfile.mkdtemp(prefix="edlz-"))
        self._master_flags = master_flags
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "HandJob":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        shutil.rmtree(self._sockets, ignore_errors=True)

    # -- processes

    def endpoint(self, name: str) -> str:
        """Return where a service listens: `master`, `ps-0`."""
        return f"ipc://{self._sockets}/{name}"

    @property
    def master_endpoint(self) -> str:
        return self.endpoint("master")

    def start_master(self) -> None:
        self._start(
            "master",
            "edlz.services.master",
            f"--job_name={self.name}",
            f"--job_dir={self.folder}",
            f"--endpoint={self.master_endpoint}",
            f"--num_ps_pods={self.partitions}",
            *self._master_flags,
        )

    def start_ps(self, index: int) -> None:
        self._start(
            f"ps-{index}",
            "edlz.services.ps",
            f"--ps_id={index}",
            f"--job_dir={self.folder}",
            f"--endpoint={self.endpoint(f'ps-{index}')}",
            f"--master_addr={self.master_endpoint}",
            "--log_level=DEBUG",
        )

    def start_worker(self, index: int, *flags: str) -> None:
        address = f"--master_addr={self.master_endpoint}"
        self._start(f"worker-{index}", "edlz.services.worker", f"--worker_id={index}", address, *flags)

    def start(self, workers: int) -> "HandJob":
        self.start_master()
        for index in range(self.partitions):
            self.start_ps(index)
        for index in range(workers):
            self.start_worker(index)
        return self

    def _start(self, name: str, module: str, *flags: str) -> None:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, *flags], stdout=log, stderr=log, env=environment
            )

    def kill(self, name: str) -> None:
        """SIGKILL, and the process is gone when this returns."""
        process = self.processes[name]
        assert process.poll() is None, f"{name} ended before it could be killed: {self.log(name)}"
        process.kill()
        process.wait()

    def wait(self, name: str, timeout_s: float = END_S) -> int:
        try:
            return self.processes[name].wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} does not end\n{self.logs()}") from None

    def finish(self, *, without: tuple[str, ...] = ()) -> JobStatus:
        """Wait for the end of all processes, each with exit code 0, and return the job's last status."""
        codes = {name: self.wait(name) for name in self.processes if name not in without}
        assert set(codes.values()) == {0}, f"{codes}\n{self.logs()}"
        return self.status()

    # -- what can be seen

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)[-4000:]}" for name in self.processes)

    def wait_for_log(self, name: str, text: str) -> None:
        def found() -> bool:
            code = self.processes[name].poll()
            if text in self.log(name):
                return True
            assert code is None, f"{name} ended with {code} before {text!r}\n{self.logs()}"
            return False

        wait_for(found, lambda: f"{text!r} in the log of {name}:\n{self.log(name)}")

    def wait_for_training(self, worker: int) -> None:
        """Wait until a worker has a task in hand: then the job does not end before that worker's loss is known."""

        def trains() -> bool:
            assert self.processes["master"].poll() is None, f"worker-{worker} has not trained\n{self.logs()}"
            (status,) = ask_all([MasterAddress(self.master_endpoint)])
            workers = status.workers if status is not None and status.tasks_done else ()
            return any((view.id, view.state) == (str(worker), "training") for view in workers)

        wait_for(trains, lambda: f"worker-{worker} trains:\n{self.log('master')}")

    def status(self) -> JobStatus:
        return _status_of(self.folder)

    @property
    def job(self) -> Job:
        return _job_of(self.folder)

    def sealed(self) -> list[State]:
        """Return the newest durable state of every partition."""
        job = self.job
        return [sealed_state(self.folder, job, index) for index in range(job.partitions)]

    def check_exactly_once(self) -> None:
        check_exactly_once(self.folder)


class TrainJob:
    """A job under `edlz train`, which starts and replaces its processes.

    Parameters
    ----------
    home : Path
        Its EDLZ_HOME.
    terminal : int, optional
        The descriptor of a terminal that it is to run in, as its own: all of it is told when that goes away.
    stdout : int, optional
        Where its standard output goes.  Both outputs go to a file if neither is given.
    command : str
        What it is begun by: train, evaluate or predict.
    """

    def __init__(
        self,
        home: Path,
        *flags: str,
        name: str = "test",
        terminal: int | None = None,
        stdout: int | None = None,
        command: str = "train",
    ) -> None:
        self.home, self.name, self.folder = home, name, home / "jobs" / name
        self._output = home / f"{name}.out"
        self._environment = {**os.environ, "EDLZ_HOME": str(home), "CUDA_VISIBLE_DEVICES": "-1"}
        words = [sys.executable, "-m", "edlz.client", command, f"--job_name={name}", *flags]
        if terminal is not None:
            words = [sys.executable, "-c", _IN_ITS_TERMINAL, *words]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                words,
                stdin=terminal,
                stdout=next((file for file in (terminal, stdout) if file is not None), output),
                stderr=output if terminal is None else terminal,
                env=self._environment,
            )

    def __enter__(self) -> "TrainJob":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()  # its children die with it
        self.process.wait()

    def pid(self, name: str) -> int:
        """Return the process id of a service, waiting for it if need be."""
        return int(
            wait_for(lambda: services_of(self.process.pid).get(name), lambda: f"{name} runs: {self.output()}")
        )

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to a service; return its process id."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def output(self) -> str:
        return self._output.read_text()

    def log(self, name: str) -> str:
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def wait_for_output(self, text: str, times: int = 1) -> str:
        """Return what has been printed once this is in it, so many times."""

        def found() -> bool:
            if self.output().count(text) >= times:
                return True
            assert self.process.poll() is None, f"the job ended before {text!r}\n{self.output()}"
            return False

        wait_for(found, lambda: f"{text!r} in\n{self.output()}")
        return self.output()

    def request(self, body: Message) -> Message:
        """Ask the master something."""

        holder = lock_holder(self.folder)
        assert holder is not None, self.output()
        answer = ask_master(holder, body, 10.0)
        assert answer is not None, f"the master does not answer\n{self.output()}"
        return answer

    def status(self) -> JobStatus:
        """Return what the master says of the running job."""
        answer = self.request(StatusRequest())
        assert isinstance(answer, JobStatus)
        return answer

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run an `edlz` command beside it, which ends with this exit code; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "edlz.client", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            text=True,
            timeout=END_S,
            check=False,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout)
        return done.stdout

    def finish(self, code: int = 0) -> JobStatus:
        """Wait for the end, with this exit code; return the job's last status."""
        try:
            ended = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end\n{self.output()}") from None
        assert ended == code, self.output()
        return _status_of(self.folder)


def check_exactly_once(folder: Path) -> None:
    """Recount from the partitions' own states, not from anybody's word."""
    job = _job_of(folder)
    plan = job.plan
    wanted = [-(-plan.task_records(task) // plan.minibatch_size) for task in range(plan.task_count)]
    for index in range(job.partitions):
        state = sealed_state(folder, job, index)
        np.testing.assert_array_equal(state.counts, wanted)
        ledger = Ledger(state.ledger)
        assert len(ledger.finished) == plan.task_count
        assert ledger.minibatches == sum(wanted)
    for view in _status_of(folder).partitions:
        assert (view.expected, view.applied) == (sum(wanted), sum(wanted)), view
        assert (view.missing, view.doubled) == (0, 0), view


def _status_of(folder: Path) -> JobStatus:
    return named_status.decode((folder / "status.json").read_bytes())


def _job_of(folder: Path) -> Job:
    with Journal(folder / "journal.sqlite") as journal:
        job = journal.job()
    assert job is not None
    return job


def sealed_state(folder: Path, job: Job, index: int) -> State:
    """Return the newest durable state of a partition, or of the members of a group."""
    if JobConfig.from_record(job.config).is_allreduce:
        replicas = ReplicaFiles(job)
        return replicas.load(max(replicas.names())[0])
    snapshots = SnapshotFolder(index, folder)
    snapshots.open(job)
    return snapshots.load(max(snapshots.names(), key=lambda name: (name[1], name[0])))

"""Whole jobs whose output goes away, or is full, while they train."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.fault import tiny_job
from tests.fault.tiny_job import MODES
from tests.processes import TrainJob, check_exactly_once, wait_for

pytestmark = pytest.mark.fault

FULL = Path("/dev/full")
FLAGS = (*tiny_job.FLAGS, MODES["sync"], "--checkpoint_steps=1000000", "--recovery_snapshot_secs=600")


def state(job: TrainJob) -> str:
    """As `edlz status` has it."""
    return str(json.loads(job.run("status", job.name, "-o", "json"))["job"]["state"])


def has_trained(job: TrainJob) -> bool:
    assert job.process.poll() is None, f"{job.output()}\n{job.log('master')}"
    return "Task:3 completed" in job.log("master")


def check_end(job: TrainJob, digest: str) -> None:
    status = job.finish()
    check_exactly_once(job.folder)
    assert status.digest == digest
    assert state(job) == "Succeeded"


def test_a_reader_that_leaves_after_the_first_line(
    tmp_path: Path, small_mnist: Path, sync_digest: str
) -> None:
    """`edlz train ... | head -1`."""
    reading, writing = os.pipe()
    data = f"--training_data={small_mnist}/train"
    with TrainJob(tmp_path, *FLAGS, data, "--num_workers=1", stdout=writing) as job:
        os.close(writing)
        with open(reading, "rb") as reader:
            assert reader.readline().strip(), job.output()
        check_end(job, sync_digest)


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
def test_an_output_on_a_full_disk(tmp_path: Path, small_mnist: Path, sync_digest: str) -> None:
    data = f"--training_data={small_mnist}/train"
    with (
        FULL.open("wb") as full,
        TrainJob(tmp_path, *FLAGS, data, "--num_workers=1", stdout=full.fileno()) as job,
    ):
        check_end(job, sync_digest)


class Terminal:
    """A terminal with somebody who looks at it."""

    def __init__(self) -> None:
        try:
            self.own, self.end = os.openpty()
        except OSError as error:  # no devpts
            pytest.skip(f"this system has no pseudo-terminals: {error.strerror}")
        os.set_blocking(self.own, False)
        self.shown = b""

    def look(self) -> None:
        while True:
            try:
                self.shown += os.read(self.own, 1 << 16)
            except BlockingIOError:
                return

    def close(self) -> None:
        """All that runs in it hears of that, as from the system."""
        self.look()
        os.close(self.own)


def check_saved(job: TrainJob, digest: str, code: int = 128 + signal.SIGHUP) -> None:
    """It has stopped at a signal, and goes on from where it was."""
    stopped = job.finish(code=code)
    assert stopped.state == "Stopped"
    assert stopped.checkpoint, job.log("master")
    assert state(job) == "Stopped"
    output = job.run("resume", job.name)
    assert f"Succeeded  {job.name}" in output
    check_exactly_once(job.folder)
    assert digest in (job.folder / "status.json").read_text()
    assert state(job) == "Succeeded"


@pytest.mark.parametrize("progress", ["live", "plain"])
def test_a_terminal_that_goes_away(
    progress: str, tmp_path: Path, small_mnist: Path, sync_digest: str
) -> None:
    terminal = Terminal()
    flags = (*FLAGS, f"--training_data={small_mnist}/train", "--num_workers=1", f"--progress={progress}")
    with TrainJob(tmp_path, *flags, terminal=terminal.end) as job:
        os.close(terminal.end)
        wait_for(lambda: terminal.look() or has_trained(job), "three tasks are done")
        assert (b"\x1b[" in terminal.shown) == (progress == "live")
        terminal.close()
        check_saved(job, sync_digest)


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGHUP,), (signal.SIGHUP,) * 3, (signal.SIGTERM,), (signal.SIGHUP, signal.SIGTERM)],
    ids=lambda signals: " ".join(number.name for number in signals),
)
def test_the_whole_job_is_told_to_end(
    signals: tuple[signal.Signals, ...], tmp_path: Path, small_mnist: Path, sync_digest: str
) -> None:
    """Every process is told, as by a shell that ends, by a machine that is shut down, or both."""
    data = f"--training_data={small_mnist}/train"
    with TrainJob(tmp_path, *FLAGS, data, "--num_workers=1") as job:
        wait_for(lambda: has_trained(job), "three tasks are done")
        pids = [job.process.pid, *(job.pid(name) for name in ("master", "ps-0", "worker-0"))]
        for number in signals:
            for pid in pids:
                os.kill(pid, number)
        check_saved(job, sync_digest, code=128 + signals[-1])

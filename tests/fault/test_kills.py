"""Real processes, really killed: the job ends by itself, and every minibatch is in the model once."""

import os
import signal
from pathlib import Path

import pytest

from edlz.services.storage.versions import list_versions, verify
from tests.fault import tiny_job
from tests.fault.tiny_job import MODES
from tests.processes import HandJob, wait_for
from tests.small_disk import small_disk

pytestmark = pytest.mark.fault

FLAGS = (
    *tiny_job.FLAGS,
    "--checkpoint_steps=50",
    "--keep_checkpoint_max=2",
    "--recovery_snapshot_secs=0.3",
)


@pytest.fixture
def start(tmp_path: Path, small_mnist: Path):  # type: ignore[no-untyped-def]
    """Start a job in a mode; it is checked at the end by `check`."""
    jobs: list[HandJob] = []

    def start(mode: str, workers: int, partitions: int) -> HandJob:
        flags = (*FLAGS, MODES[mode], f"--training_data={small_mnist}/train")
        jobs.append(HandJob(tmp_path, *flags, partitions=partitions).start(workers))
        return jobs[0]

    yield start
    for job in jobs:
        job.__exit__()


def check(job: HandJob, mode: str, sync_digest: str, *, without: tuple[str, ...] = ()) -> None:
    status = job.finish(without=without)
    job.check_exactly_once()
    if mode == "sync":
        assert status.digest == sync_digest


@pytest.mark.parametrize("mode", MODES)
def test_a_worker(mode: str, start, sync_digest: str) -> None:  # type: ignore[no-untyped-def]
    job = start(mode, 2, 2)
    job.wait_for_training(0)
    job.kill("worker-0")
    check(job, mode, sync_digest, without=("worker-0",))
    assert "worker-0 lost" in job.log("master")


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_wakes_up_again(mode: str, start, sync_digest: str) -> None:  # type: ignore[no-untyped-def]
    job = start(mode, 2, 1)
    job.wait_for_training(0)
    process = job.processes["worker-0"]
    os.kill(process.pid, signal.SIGSTOP)
    job.wait_for_log("master", "worker-0 lost: nothing heard")
    os.kill(process.pid, signal.SIGCONT)
    check(job, mode, sync_digest)


@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_server(mode: str, start, sync_digest: str) -> None:  # type: ignore[no-untyped-def]
    job = start(mode, 1, 2)
    wait_for(lambda: "wrote snapshot" in job.log("ps-1"), "a recovery snapshot of ps-1")
    job.kill("ps-1")
    job.start_ps(1)
    check(job, mode, sync_digest)
    assert "ps-1 is back" in job.log("master")


@pytest.mark.parametrize("mode", MODES)
def test_the_master(mode: str, start, sync_digest: str) -> None:  # type: ignore[no-untyped-def]
    job = start(mode, 1, 1)
    job.wait_for_log("master", "Task:2 completed")
    job.kill("master")
    job.start_master()
    check(job, mode, sync_digest)
    assert "term=2" in job.log("master")


def test_a_full_disk_costs_checkpoints_and_nothing_else(tmp_path: Path, small_mnist: Path) -> None:
    with small_disk(tmp_path / "disk", 320) as disk:
        flags = (*FLAGS, f"--checkpoint_dir={disk}/checkpoints", "--keep_checkpoint_max=0")
        data = f"--training_data={small_mnist}/train"
        with HandJob(tmp_path, *flags, MODES["sync"], data, partitions=2).start(1) as job:
            job.finish()
            job.check_exactly_once()
        good = [info for info in list_versions(disk / "checkpoints") if info.is_good]
        assert good, job.log("master")
        assert all(verify(info.folder) == () for info in good)
        assert "No space left on device" in job.log("master")

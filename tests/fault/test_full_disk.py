"""A disk under the job's folder that is full in the middle of a job: it waits, and ends as if nothing had been."""

from pathlib import Path

import pytest

from tests.fault.tiny_job import FLAGS, MODES
from tests.processes import TrainJob, check_exactly_once
from tests.small_disk import fill, small_disk

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("killed", ["", "master"])
def test_a_disk_that_is_full_for_a_while(
    mode: str, killed: str, tmp_path: Path, small_mnist: Path, sync_digest: str
) -> None:
    flags = (*FLAGS, MODES[mode], f"--training_data={small_mnist}/train", "--recovery_snapshot_secs=0.5")
    with (
        small_disk(tmp_path / "jobs", 24 * 1024) as disk,
        TrainJob(tmp_path, *flags, "--num_workers=2", "--num_ps_pods=2") as job,
    ):
        job.wait_for_output("Task:3 completed")
        with fill(disk):
            job.wait_for_output("no room on the disk")
            if killed:
                job.kill(killed)
                job.wait_for_output(
                    "no room on the disk", times=2
                )  # its loss is journalled before anything follows it
        status = job.finish()
        check_exactly_once(job.folder)
        if mode == "sync":
            assert status.digest == sync_digest

"""Real processes: a parameter server that is told to end has the job saved first."""

import re
import signal
import time
from pathlib import Path

import pytest

from edlz.services.ps.core.leaving import ENDED
from tests.fault import tiny_job
from tests.fault.tiny_job import MODES
from tests.processes import HandJob

pytestmark = pytest.mark.fault

FLAGS = (*tiny_job.FLAGS, "--recovery_snapshot_secs=600")


@pytest.mark.parametrize("partitions", [1, 2])
def test_sync_goes_on_where_it_was(
    tmp_path: Path, small_mnist: Path, sync_digest: str, partitions: int
) -> None:
    flags = (*FLAGS, MODES["sync"], f"--training_data={small_mnist}/train")
    with HandJob(tmp_path, *flags, partitions=partitions).start(1) as job:
        job.wait_for_log("master", "Task:3 completed")
        job.processes["ps-0"].send_signal(signal.SIGTERM)
        assert job.wait("ps-0") == ENDED
        saved = re.search(r"ps=0 ends: told to end; v(\d+) is saved everywhere", job.log("ps-0"))
        assert saved is not None, job.logs()
        assert int(saved[1]) > 0
        job.start_ps(0)
        assert job.finish().digest == sync_digest
        job.check_exactly_once()
    assert f"all partitions go back to v{saved[1]}, which all of them have" in job.log("master")


def test_a_master_that_has_the_partition_in_itself_saves_it(
    tmp_path: Path, small_mnist: Path, sync_digest: str
) -> None:
    """All of a job that was started by hand is told to end."""
    flags = (*FLAGS, MODES["sync"], f"--training_data={small_mnist}/train")
    with HandJob(tmp_path, *flags, partitions=0).start(1) as job:
        job.wait_for_log("master", "Task:3 completed")
        for name in ("worker-0", "master"):
            job.processes[name].send_signal(signal.SIGTERM)
        assert [job.wait(name) for name in ("worker-0", "master")] == [ENDED, ENDED]
        job.start(1)
        assert job.finish().digest == sync_digest
        job.check_exactly_once()
    begun = [int(found) for found in re.findall(r"training begins at v(\d+)", job.log("master"))]
    assert begun[0] == 0 < begun[1]


def test_parameter_servers_that_are_told_first_save_one_version(
    tmp_path: Path, small_mnist: Path, sync_digest: str
) -> None:
    flags = (*FLAGS, MODES["sync"], f"--training_data={small_mnist}/train")
    with HandJob(tmp_path, *flags, partitions=2).start(1) as job:
        job.wait_for_log("master", "Task:3 completed")
        for names in (("ps-0", "ps-1"), ("worker-0", "master")):
            for name in names:
                job.processes[name].send_signal(signal.SIGTERM)
            assert [job.wait(name) for name in names] == [ENDED, ENDED]
        saved = [re.findall(r"told to end; v(\d+) is saved everywhere", job.log(f"ps-{i}")) for i in (0, 1)]
        assert saved[0] == saved[1] != [], job.logs()
        job.start(1)
        assert job.finish().digest == sync_digest
        job.check_exactly_once()
    assert f"training begins at v{saved[0][0]}," in job.log("master")


def test_async_goes_on_where_it_was(tmp_path: Path, small_mnist: Path) -> None:
    flags = (*FLAGS, MODES["async"], f"--training_data={small_mnist}/train")
    with HandJob(tmp_path, *flags, partitions=2).start(1) as job:
        job.wait_for_log("master", "Task:3 completed")
        job.processes["ps-0"].send_signal(signal.SIGTERM)
        assert job.wait("ps-0") == ENDED
        saved = re.search(r"ps=0 ends: told to end; v(\d+) is saved", job.log("ps-0"))
        assert saved is not None, job.logs()
        job.start_ps(0)
        job.finish()
        job.check_exactly_once()
    assert f"ps-0 is back at v{saved[1]};" in job.log("master")


def test_it_is_not_waited_for_without_a_master(tmp_path: Path, small_mnist: Path) -> None:
    """Told twice it goes at once, also before anything can be saved."""
    flags = (*FLAGS, MODES["sync"], f"--training_data={small_mnist}/train")
    with HandJob(tmp_path, *flags, partitions=2).start(1) as job:
        job.wait_for_log("master", "Task:1 completed")
        job.kill("master")
        for index in (0, 1):
            job.processes[f"ps-{index}"].send_signal(signal.SIGTERM)
        time.sleep(0.1)  # two signals that come at once are one
        job.processes["ps-1"].send_signal(signal.SIGTERM)
        assert [job.wait(f"ps-{index}") for index in (1, 0)] == [ENDED, ENDED]
        assert "a second time" in job.log("ps-1")
        assert "does not answer" in job.log("ps-0")

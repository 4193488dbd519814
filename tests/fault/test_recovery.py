"""Real processes: what a lost parameter server goes back to."""

import re
import shutil
from pathlib import Path

import pytest

from edlz.services.storage.versions import list_versions
from tests.fault import tiny_job
from tests.fault.tiny_job import MODES
from tests.processes import HandJob, wait_for

pytestmark = pytest.mark.fault

FLAGS = (*tiny_job.FLAGS, "--checkpoint_steps=40", "--recovery_snapshot_secs=600")


BACK = {"sync": r"all partitions go back to v(\d+)", "async": r"ps-1 is back at v(\d+)"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loses_disk", [False, True], ids=["disk kept", "disk lost"])
def test_a_complete_checkpoint_is_newer_than_the_snapshots(
    tmp_path: Path, small_mnist: Path, sync_digest: str, loses_disk: bool, mode: str
) -> None:
    flags = (*FLAGS, MODES[mode], f"--training_data={small_mnist}/train")
    with HandJob(tmp_path, *flags, partitions=2).start(1) as job:

        def are_two() -> bool:
            """The partitions know of the first by then."""
            return sum(info.is_good for info in list_versions(tmp_path / "checkpoints")) >= 2

        wait_for(are_two, "two checkpoints")
        job.kill("ps-1")
        if loses_disk:
            shutil.rmtree(tmp_path / "ps-1")
        job.start_ps(1)
        digest = job.finish().digest
        assert digest == sync_digest or mode == "async"
        job.check_exactly_once()
    gone_back = re.search(BACK[mode], job.log("master"))
    assert gone_back is not None, job.log("master")
    assert int(gone_back[1]) > 0

"""The checkpoint that a job began from stays as long as the job may read it again, however few are kept."""

import asyncio
from pathlib import Path

import pytest

from edlz.services.master.core.vocabulary.instructions import WriteManifest
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.storage.checkpoint_records import version_folder
from edlz.services.storage.versions import list_versions
from tests.builders import settings_in
from tests.states import make_cut, save, write_parts

BEGUN, SAVED = 100, (110, 120, 130)


def saves(folder: Path, begins_in: Path, checkpoints: Path) -> list[int]:
    """Let a job that begins from version 100 there save three versions; return those that are left where it saves."""
    config = settings_in(
        folder,
        checkpoint_steps=10,
        checkpoint_dir=str(checkpoints),
        checkpoint_dir_for_init=str(begins_in),
        keep_checkpoint_max=1,
    )
    stop = Stop()

    async def attend(service: MasterService) -> None:
        run = service._core.job.run
        assert service._core.job.begins_from == str(version_folder(begins_in, BEGUN))
        for version in SAVED:
            parts = write_parts(checkpoints, make_cut(1, version=version), run=run)
            order = WriteManifest(version, version, tuple(parts))
            assert await service._checkpoints.complete(order, minibatches=0) == ""
        stop.set(0, "the test is over")

    assert asyncio.run(serve_master(config, stop, attend)) == 0
    return [info.version for info in list_versions(checkpoints) if info.is_good]


@pytest.mark.parametrize("is_linked", [False, True])
def test_it_stays_in_the_folder_that_the_job_saves_to(tmp_path: Path, is_linked: bool) -> None:
    """Under whatever name the folder is given."""
    folder = tmp_path / "checkpoints"
    save(folder, BEGUN, run="before")
    begins_in = folder
    if is_linked:
        begins_in = tmp_path / "link"
        begins_in.symlink_to(folder)
    assert saves(tmp_path, begins_in, folder) == [SAVED[-1], BEGUN]


def test_a_version_of_that_number_in_another_folder_keeps_nothing(tmp_path: Path) -> None:
    save(tmp_path / "before", BEGUN, run="before")
    save(tmp_path / "checkpoints", BEGUN, run="another")
    assert saves(tmp_path, tmp_path / "before", tmp_path / "checkpoints") == [SAVED[-1]]
    assert [info.version for info in list_versions(tmp_path / "before") if info.is_good] == [BEGUN]

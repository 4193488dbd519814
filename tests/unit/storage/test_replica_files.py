"""The states of a group as its members and its master find them: recovery snapshots, and checkpoints beside them."""

import logging
from pathlib import Path

import msgspec
import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, DataError
from edlz.services.storage.checkpoint_writing import Finished, write_manifest
from edlz.services.storage.replica_files import ReplicaFiles
from edlz.services.storage.state import State
from tests import builders
from tests.rights import without_rights
from tests.states import make_cut, merged

ERA = (3, 4)


def written(folder: Path, *, is_checkpoint: bool, version: int = 7) -> tuple[ReplicaFiles, list[State]]:
    """Have two members write their parts of a state, and its master complete it if it is no checkpoint."""
    config = JobConfig(job_name="j", job_dir=str(folder))
    job = builders.job(builders.plan(20), config=config.to_record())
    files = ReplicaFiles(job)
    cut = [
        msgspec.structs.replace(state, plan_hash=job.plan.hash)
        for state in make_cut(2, era=ERA, version=version, tables=())
    ]
    parts = tuple(files.write(state, "a", is_checkpoint=is_checkpoint) for state in cut)
    finished = Finished(job="j", run="r", mode="sync", number=1, epoch=0, minibatches=1)
    infos = tuple(part for part in parts if part is not None)
    if is_checkpoint:
        write_manifest(files.place(is_checkpoint=True), version, infos, finished, tag="m")
    else:
        files.complete(version, infos, finished, "m")
    return files, cut


@pytest.mark.parametrize("is_checkpoint", [True, False])
def test_a_state_is_found_in_either_place_and_nobody_is_warned_of_the_other(
    is_checkpoint: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, cut = written(tmp_path, is_checkpoint=is_checkpoint)
    assert files.names() == {((ERA, 7), is_checkpoint)}
    with caplog.at_level(logging.WARNING):
        state = files.load((ERA, 7))
    assert merged([state]) == merged(cut)
    assert caplog.records == []


def test_a_state_of_another_name_or_one_that_is_damaged_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, _ = written(tmp_path, is_checkpoint=True)
    for name in (((3, 5), 7), (ERA, 8)):
        with pytest.raises(DataError, match="no state of v"):
            files.load(name)
    assert caplog.records == []
    [part, *_] = sorted(files.place(is_checkpoint=True).glob("version-7/*"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(DataError, match="no state of v7"):
        files.load((ERA, 7))
    assert "cannot be read" in caplog.text


def test_a_member_knows_the_masters_folder_by_its_mark(tmp_path: Path) -> None:
    """One on another machine may have written its parts into a folder of the same name."""
    files, _ = written(tmp_path / "there", is_checkpoint=False)
    assert not files.are_marked
    for _ in range(2):  # a master may be started again
        files.mark()
    assert files.are_marked
    assert files.names() == {((ERA, 7), False)}


def test_a_member_that_may_not_look_into_the_masters_folder_does_not_see_it(tmp_path: Path) -> None:
    files, _ = written(tmp_path / "closed", is_checkpoint=False)
    files.mark()
    with without_rights(tmp_path / "closed"):
        assert not files.are_marked
        with pytest.raises(DataError, match="no state of v7"):
            files.load((ERA, 7))
    assert files.are_marked


def test_a_master_that_cannot_leave_its_mark_says_where(tmp_path: Path) -> None:
    (tmp_path / "replicas").touch()
    job = builders.job(config=JobConfig(job_name="j", job_dir=str(tmp_path)).to_record())
    with pytest.raises(ConfigError, match=r"cannot use .*replicas"):
        ReplicaFiles(job).mark()

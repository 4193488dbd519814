"""One master at a time in a job's folder, and what becomes of the lock of one that is cut off."""

from pathlib import Path

import pytest

from edlz.services.errors import LaunchError
from edlz.services.master.planning import lock_folder

POD = "research/elasticdl-j-master"


@pytest.mark.parametrize("holder", ["", POD])
def test_a_second_master_is_kept_out(tmp_path: Path, holder: str) -> None:
    with lock_folder(tmp_path, "j"), pytest.raises(LaunchError, match="another master"):
        lock_folder(tmp_path, "j", holder)
    lock_folder(tmp_path, "j", holder).close()


def test_another_pods_folder_is_left_to_it(tmp_path: Path) -> None:
    with lock_folder(tmp_path, "j", POD), pytest.raises(LaunchError, match="another master"):
        lock_folder(tmp_path, "j", "research/elasticdl-k-master")


def test_the_next_pod_of_the_same_name_does_not_wait_for_one_that_is_cut_off(tmp_path: Path) -> None:
    """Of a name there is one pod at a time: who has the lock was deleted without the word of its node."""
    with lock_folder(tmp_path, "j", POD):
        with lock_folder(tmp_path, "j", POD), pytest.raises(LaunchError, match="another master"):
            lock_folder(tmp_path, "j")
        lock_folder(tmp_path, "j").close()
    assert [path.name for path in tmp_path.iterdir()] == ["master.lock"]

"""Folders that the master's user may not write to, and what is said then."""

from pathlib import Path

import pytest

from edlz.k8s.flags.volumes import parse_volumes
from edlz.k8s.job_folders import check_folders
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError


def test_folders_are_made_and_left_empty(tmp_path: Path) -> None:
    folders = [tmp_path / "a" / "job", tmp_path / "b" / "checkpoints"]
    check_folders(JobConfig(job_dir=str(folders[0]), checkpoint_dir=str(folders[1]), checkpoint_steps=10))
    assert [list(folder.iterdir()) for folder in folders] == [[], []]


@pytest.mark.parametrize(
    ("volume", "remedy"),
    [
        ("host_path=/ssd", "/ssd (or chmod it) on the node"),
        ("claim_name=mnist", 'the folder of claim "mnist", whose storage ignores fsGroup'),
        ("", "name a folder on a --volume"),
    ],
)
def test_who_has_to_let_whom_in(volume: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("a file in the way")  # permissions would not stop a test that root runs
    job_dir = f"{tmp_path}/jobs/mnist"
    text = f"{volume},mount_path={tmp_path}" if volume else ""
    with pytest.raises(ConfigError) as raised:
        check_folders(JobConfig(job_dir=job_dir, volume=text))
    assert raised.value.message.startswith(f"--job_dir={job_dir} cannot be written to by user ")
    assert raised.value.message.endswith(": Not a directory")
    assert remedy in raised.value.help


@pytest.mark.parametrize("name", ["out", "m.keras"])
def test_the_place_of_the_export(name: str, tmp_path: Path) -> None:
    about = {"job_dir": str(tmp_path / "job"), "training_data": "d"}
    check_folders(JobConfig(output=str(tmp_path / "models" / name), **about))
    assert (tmp_path / "models" / "out").is_dir() is (name == "out")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"--output={tmp_path}/file/"):
        check_folders(JobConfig(output=str(tmp_path / "file" / "a" / name), **about))


def test_checkpoints_are_written_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = JobConfig(job_dir=str(tmp_path / "job"), checkpoint_dir=f"{tmp_path}/file", checkpoint_steps=1)
    with pytest.raises(ConfigError, match="--checkpoint_dir="):
        check_folders(config)


def test_the_innermost_volume_counts() -> None:
    volumes = parse_volumes("host_path=/a,mount_path=/data;claim_name=c,mount_path=/data/jobs")
    found = [volumes.below(path) for path in ("/data/jobs/mnist", "/data/mnist", "/tmp")]
    assert [one and (one.claim_name or one.host_path) for one in found] == ["c", "/a", None]

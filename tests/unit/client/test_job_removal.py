"""`edlz rm`: a job's own folder goes, and nothing else.

What is tested here removes files.  So every test runs in a folder of its own, and whatever would remove
something outside of the one job that is to go fails the test before it does.
"""

import fcntl
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edlz.client.cli import main
from edlz.client.job_files.job_index import LocalJob, find_job
from edlz.client.local.job_directory import open_job_directory
from edlz.client.local.job_removal import remove_job
from edlz.services.errors import ConfigError, EdlzError
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import JobState, JobStatus
from tests import builders


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job; nothing but it can be removed."""
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    monkeypatch.chdir(tmp_path / "precious")
    path = tmp_path / "home" / "jobs" / "mnist"

    def confined(remove: Callable[..., Any]) -> Callable[..., Any]:
        def checked(target: Any, *args: Any, **kwargs: Any) -> Any:
            if "dir_fd" not in kwargs:  # what is removed below a folder that was checked
                whole = Path(os.fsdecode(target)).absolute()
                parent = whole.parent.resolve()
                is_own = parent == path or path in parent.parents or whole == path
                is_index = parent == tmp_path / "home" / "index"
                assert is_own or is_index, f"{target} would have been removed"
            return remove(target, *args, **kwargs)

        return checked

    with open_job_directory(builders.settings(job_name="mnist")) as folder:
        (folder.logs / "master.log").write_text("x" * 1000)
        (folder.path / "journal.sqlite").touch()
    monkeypatch.setattr(shutil, "rmtree", confined(shutil.rmtree))
    for name in ("unlink", "rmdir", "remove"):
        monkeypatch.setattr(os, name, confined(getattr(os, name)))
    assert folder.path == path
    return path


def is_precious_whole(tmp_path: Path) -> bool:
    return (tmp_path / "precious" / "thesis.tex").read_text() == "years of work"


def test_a_job_is_removed(job: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (job / "checkpoints" / "version-300").mkdir(parents=True)
    (job / "checkpoints" / "version-300" / "manifest.json").touch()
    assert main(["rm", "mnist"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("mnist is removed: 2.")
    assert first.endswith(f" KB in {job}")
    assert rest == ["next: edlz ls"]
    assert not job.exists()
    assert main(["rm", "mnist"]) == 4


def another(name: str, state: JobState | None = None, **about: Any) -> Path:
    """Leave another job."""
    config = builders.settings(job_name=name, **about)
    with open_job_directory(config) as folder:
        (folder.path / "journal.sqlite").touch()
        if state is not None:
            status = JobStatus(name=name, state=state, mode="sync", slots=1, started_at=1.0, now=2.0)
            (folder.path / "status.json").write_bytes(named_status.encode(status))
    return folder.path


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which all jobs can be removed."""
    home = tmp_path / "own"
    monkeypatch.undo()
    monkeypatch.setenv("EDLZ_HOME", str(home))
    monkeypatch.chdir(tmp_path / "precious")
    return home


def test_several_jobs_are_removed_or_none(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = another("first"), another("second")
    assert main(["rm", "first", "thrid", "second"]) == 4
    assert 'no job "thrid"' in capsys.readouterr().err
    assert first.exists()
    assert main(["rm", "first", "second", "first"]) == 0
    assert capsys.readouterr().out.count(" is removed: ") == 2
    assert not first.exists()
    assert not second.exists()


def test_one_that_cannot_be_removed_keeps_no_other(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = another("first"), another("second"), another("third")
    (first / ".edlz-job").unlink()
    (third / ".edlz-job").unlink()
    assert main(["rm", "first", "second", "third"]) == 2
    assert capsys.readouterr().err.count("does not carry the mark of a job") == 2
    assert not second.exists()


def test_all_of_a_state_are_removed(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = another("kept", "Failed")
    gone = [another(name, "Stopped") for name in ("a", "b")]
    gone.append(another("elsewhere", "Stopped", job_dir=str(own_home / "elsewhere")))
    another("twice", "Stopped")
    another("twice", "Succeeded")
    gone.append(own_home / "jobs" / "twice.1")
    assert gone[-1].exists()
    for answer, code in (("n", 1), ("y", 0)):
        assert all(path.exists() for path in gone)
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{answer}\n"))
        assert main(["rm", "--all", "Stopped"]) == code
    printed = capsys.readouterr()
    assert printed.err.count("remove a, b, elsewhere, twice.1? [y/N] ") == 2
    assert printed.err.count("nothing was removed") == 1
    assert not any(path.exists() for path in gone)
    assert kept.exists()
    assert (own_home / "jobs" / "twice").exists()
    assert main(["rm", "--all", "stopped"]) == 0
    assert "no job here is stopped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--all", "running"], 'error: --all "running" is no state in which a job has ended'),
        (["mnist", "--all", "failed"], "error: --all failed and mnist: both say which jobs"),
    ],
)
def test_states_that_say_nothing(
    argv: list[str], error: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rm", *argv]) == 2
    assert error in capsys.readouterr().err
    assert job.exists()


def test_checkpoints_elsewhere_stay(job: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with (job / "job.yaml").open("a") as settings:
        settings.write(f"checkpoint_dir: {tmp_path}/precious\n")
    assert main(["rm", "mnist"]) == 0
    assert f"its checkpoints stay in {tmp_path}/precious" in capsys.readouterr().out
    assert is_precious_whole(tmp_path)


def test_links_go_and_what_they_point_to_stays(job: Path, tmp_path: Path) -> None:
    (job / "folder").symlink_to(tmp_path / "precious")
    (job / "file").symlink_to(tmp_path / "precious" / "thesis.tex")
    (job / "logs" / "deep").symlink_to(tmp_path / "precious")
    (job / "dangling").symlink_to(tmp_path / "nowhere")
    os.link(tmp_path / "precious" / "thesis.tex", job / "hard")
    assert main(["rm", "mnist"]) == 0
    assert not job.exists()
    assert is_precious_whole(tmp_path)


def test_a_job_that_is_a_link_is_refused(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious" / ".edlz-job").touch()
    link = job.with_name("linked")
    link.symlink_to(tmp_path / "precious")
    for word in ("linked", str(link)):
        assert main(["rm", word]) == 2
        assert f"{link} is a link" in capsys.readouterr().err
    assert is_precious_whole(tmp_path)


@pytest.mark.parametrize("sign", ["job.yaml", "journal.sqlite", "linked mark", "folder"])
def test_a_folder_without_the_mark_is_refused(
    sign: str, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "precious"
    (precious / "job.yaml").touch()
    if sign == "linked mark":
        (precious / ".edlz-job").symlink_to(job / ".edlz-job")
    elif sign == "folder":
        (precious / ".edlz-job").mkdir()
    else:
        (precious / sign).touch()
    assert main(["rm", str(precious)]) == 2
    assert "does not carry the mark of a job (.edlz-job)" in capsys.readouterr().err
    assert is_precious_whole(tmp_path)


@pytest.mark.parametrize("place", ["precious", ".", "user", "home"])
def test_folders_that_hold_more_than_a_job_are_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark somewhere else, as a job_dir of `.` could have left it."""
    folder = (tmp_path / place).resolve()
    if place == "home":
        (tmp_path / "home" / "user").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / "home" / "user"))
    (folder / ".edlz-job").touch()
    with pytest.raises(ConfigError, match=r"which is to be removed|holds your home folder"):
        remove_job(LocalJob("mnist", folder, "mnist"))
    assert is_precious_whole(tmp_path)


def test_a_job_that_runs_is_refused(capsys: pytest.CaptureFixture[str], job: Path) -> None:
    config = builders.settings(job_name="mnist")
    lock = (job / "lock").open("w+")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["rm", "mnist"]) == 2
    assert capsys.readouterr().err.splitlines()[1] == "help: edlz stop mnist, then edlz rm mnist"
    with (job / "master.lock").open("w") as by_hand:
        fcntl.flock(by_hand, fcntl.LOCK_EX)
        assert main(["rm", "mnist"]) == 2
    assert "is run by a master" in capsys.readouterr().err
    assert (job / "logs" / "master.log").exists()
    assert config.job_directory == job


def test_a_removal_that_fails_can_be_repeated(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", fail)
        assert main(["rm", "mnist"]) == 2
    assert f"error: {job}/logs cannot be removed: Permission denied" in capsys.readouterr().err
    assert find_job("mnist").path == job
    assert main(["rm", "mnist"]) == 0
    assert not job.exists()


def test_a_removed_job_leaves_the_index(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = tmp_path / "home" / "index" / "mnist"
    entry.parent.mkdir()
    entry.write_text(f"{job}\n")
    assert main(["rm", str(job)]) == 0
    assert not entry.exists()
    with pytest.raises(EdlzError):
        find_job("mnist")

"""A job's folder: one run at a time, nothing lost, nothing left, and nobody else's folder removed.

What is tested here removes folders.  So every test runs in a folder of its own, keeps the sockets in it,
and has a `shutil.rmtree` that refuses any path outside of it.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edlz.client.local import job_directory
from edlz.client.local.job_directory import open_job_directory
from edlz.client.local.launching.log_file import LogFile, LogTrouble
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, LaunchError, LocalProtocolError
from tests import builders


@pytest.fixture(autouse=True)
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Confine the test; returns the folders that were removed."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "precious").mkdir()
    (tmp_path / "t").mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    monkeypatch.setattr(job_directory, "_LONGEST_SOCKET_PATH", 1000)
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    paths: list[Path] = []
    remove: Callable[..., None] = shutil.rmtree

    def confined(path: os.PathLike[str] | str, ignore_errors: bool = False) -> None:
        whole = Path(path).absolute().resolve()
        assert whole.is_relative_to(tmp_path / "t"), f"{path} would have been removed"
        assert whole != tmp_path / "t", f"{path} would have been removed"
        paths.append(whole)
        remove(whole, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", confined)
    return paths


@pytest.fixture
def config() -> JobConfig:
    return builders.settings(job_name="mnist")


def make_job_folder(config: JobConfig) -> Path:
    path = config.job_directory
    path.mkdir(parents=True)
    (path / ".edlz-job").touch()
    return path


def test_folders_while_the_job_runs_and_after(config: JobConfig, tmp_path: Path, removed: list[Path]) -> None:
    with open_job_directory(config) as folder:
        assert folder.path == tmp_path / "home" / "jobs" / "mnist"
        assert folder.logs.is_dir()
        assert folder.scratch.is_dir()
        assert folder.sockets.stat().st_mode & 0o777 == 0o700
        assert json.loads((folder.path / "lock").read_text())["pid"] == os.getpid()
        assert "job_name" in (folder.path / "job.yaml").read_text()
        assert folder.earlier is None
        (folder.sockets / "master.sock").touch()
    assert removed == [folder.sockets]
    assert not folder.sockets.exists()
    assert sorted(entry.name for entry in folder.path.iterdir()) == [".edlz-job", "job.yaml", "logs"]


def test_a_second_run_of_the_name_is_refused_while_the_first_runs(config: JobConfig) -> None:
    with open_job_directory(config) as folder:
        running = f'job "mnist" is running \\(pid {os.getpid()}\\)'
        with pytest.raises(ConfigError, match=running) as raised, open_job_directory(config):
            pass
        assert raised.value.help == "edlz stop mnist, or --job_name=mnist-2"
        assert (folder.path / "lock").exists()
        assert folder.sockets.exists()
    with open_job_directory(config):
        pass


def test_earlier_runs_are_moved_aside_with_their_logs(config: JobConfig) -> None:
    for number in range(3):
        with open_job_directory(config) as folder:
            (folder.logs / "master.log").write_text(f"run {number}")
    assert folder.earlier is not None
    assert folder.earlier.name == "mnist.2"
    kept = [folder.path.with_name(f"mnist.{n}") / "logs" / "master.log" for n in (1, 2)]
    assert [path.read_text() for path in kept] == ["run 0", "run 1"]


def test_a_resumed_run_that_does_not_begin_leaves_what_the_one_before_said(config: JobConfig) -> None:
    with open_job_directory(config) as folder:
        folder.keep_last_word()
        assert not (folder.path / "status.json").exists()
        (folder.path / "status.json").write_text("succeeded")
    with open_job_directory(config, is_resumed=True) as folder:
        assert not (folder.path / "status.json").exists()
        folder.keep_last_word()
    assert (folder.path / "status.json").read_text() == "succeeded"
    with open_job_directory(config, is_resumed=True) as folder:
        (folder.path / "status.json").write_text("stopped")
        folder.keep_last_word()
    assert (folder.path / "status.json").read_text() == "stopped"
    with open_job_directory(config, is_resumed=True):
        pass
    assert not (folder.path / "status.json").exists()


def test_everything_is_taken_away_when_the_run_fails(config: JobConfig) -> None:
    with pytest.raises(KeyboardInterrupt), open_job_directory(config) as folder:
        raise KeyboardInterrupt
    assert not folder.sockets.exists()
    assert not (folder.path / "lock").exists()


# ---------------------------------------------------------------- what may be removed


def test_sockets_of_a_run_that_was_killed_are_removed_by_the_next(config: JobConfig) -> None:
    left = Path(tempfile.mkdtemp(prefix="edlz-"))
    (left / "master.sock").touch()
    (make_job_folder(config) / "lock").write_text(json.dumps({"pid": 1, "sockets": str(left)}))
    with open_job_directory(config):
        assert not left.exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "no json",
        '{"sockets": null}',
        '{"sockets": ""}',
        '{"sockets": "."}',
        '{"sockets": "/"}',
        '{"sockets": 7}',
        '{"sockets": ["a"]}',
        '{"sockets": "edlz-abcdefgh"}',
        '{"sockets": "precious"}',
        '{"sockets": "{tmp}"}',
        '{"sockets": "{tmp}/here/precious"}',
        '{"sockets": "{tmp}/here/edlz-abcdefgh"}',
        '{"sockets": "{tmp}/t"}',
        '{"sockets": "{tmp}/t/edlz-"}',
        '{"sockets": "{tmp}/t/edlz-abcdefgh/../../here"}',
        '{"sockets": "{tmp}/t/edlz-linkedto"}',
    ],
)
def test_a_lock_file_cannot_have_any_other_folder_removed(
    content: str, config: JobConfig, tmp_path: Path, removed: list[Path]
) -> None:
    for name in ("here/edlz-abcdefgh", "t/edlz-", "t/edlz-abcdefgh"):
        (tmp_path / name).mkdir()
    (tmp_path / "t" / "edlz-linkedto").symlink_to(tmp_path / "here")
    (make_job_folder(config) / "lock").write_text(content.replace("{tmp}", str(tmp_path)))
    before = {path for path in tmp_path.rglob("*") if "home" not in path.parts}
    with open_job_directory(config) as folder:
        assert removed == []
    assert removed == [folder.sockets]
    assert {path for path in tmp_path.rglob("*") if "home" not in path.parts} == before


@pytest.mark.parametrize(
    "path", ["", ".", "/", "edlz-abcdefgh", "precious", "/tmp", "/tmp/edlz-", "/tmp/other"]
)
def test_the_removal_itself_refuses_what_is_no_folder_of_sockets(path: str, removed: list[Path]) -> None:
    with pytest.raises(LocalProtocolError, match="must not be removed"):
        job_directory._remove_sockets_folder(Path(path))
    assert removed == []


def test_folders_of_sockets_have_the_name_that_is_checked(removed: list[Path]) -> None:
    for _ in range(50):
        path = job_directory._make_sockets_folder()
        job_directory._remove_sockets_folder(path)
        assert not path.exists()
    assert len(removed) == 50


def test_sockets_lie_where_the_system_takes_their_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_directory, "_LONGEST_SOCKET_PATH", 100)
    made: list[str] = []

    def mkdtemp(prefix: str, dir: str) -> str:  # noqa: A002
        made.append(dir)
        return f"{dir}/{prefix}12345678"

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", mkdtemp)
        patch.setattr(tempfile, "tempdir", "/short")
        longest = f"{job_directory._make_sockets_folder()}/worker-99999.sock"
        assert len(longest) <= 103  # macOS has the lowest limit
        patch.setattr(tempfile, "tempdir", "/long" * 30)
        job_directory._make_sockets_folder()
        assert made == ["/short", "/tmp"]
        patch.setattr(job_directory, "_parents_of_sockets", lambda: ("/long" * 30,))
        with pytest.raises(LaunchError, match="too long for sockets"):
            job_directory._make_sockets_folder()


# ---------------------------------------------------------------- what may not be moved


@pytest.mark.parametrize("name", ["thesis.tex", "job.yaml", "lock", "master.lock"])
def test_files_of_somebody_else_are_not_moved_aside(name: str, config: JobConfig) -> None:
    path = config.job_directory
    path.mkdir(parents=True)
    (path / name).touch()
    with pytest.raises(ConfigError, match="holds files that are no job's"), open_job_directory(config):
        pass
    assert [entry.name for entry in path.iterdir()] == [name]


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_the_folder_one_is_in_is_never_a_jobs_folder(place: str, tmp_path: Path) -> None:
    (tmp_path / "here" / ".edlz-job").touch()
    config = JobConfig(job_name="a", job_dir=place)
    with pytest.raises(ConfigError, match="the folder you are in"), open_job_directory(config):
        pass
    assert (tmp_path / "here" / "precious").is_dir()


def test_the_folder_of_a_master_that_was_started_by_hand_is_a_jobs_folder(config: JobConfig) -> None:
    path = config.job_directory
    path.mkdir(parents=True)
    (path / "master.lock").touch()
    (path / "journal.sqlite").touch()
    with open_job_directory(config) as folder:
        assert folder.earlier is not None
        assert (folder.earlier / "journal.sqlite").exists()


def test_a_running_master_is_not_moved_aside(config: JobConfig) -> None:
    path = make_job_folder(config)
    with (path / "master.lock").open("w+") as lock:
        lock.write("77")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        by_hand = r"is run by a master in .* \(pid 77\)"
        with pytest.raises(ConfigError, match=by_hand), open_job_directory(config):
            pass
    with open_job_directory(config) as folder:
        assert folder.earlier is not None


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = JobConfig(job_name="a", job_dir=str(tmp_path / "file" / "deep"))
    with pytest.raises(ConfigError, match="cannot be used"), open_job_directory(config):
        pass


def test_log_files_turn_over(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    log = LogFile(logs / "w.log", LogTrouble(print), most_bytes=10, kept=2)
    for number in range(6):
        log.write(f"line {number}\n".encode())
    log.close()
    names = sorted(entry.name for entry in logs.iterdir())
    assert names == ["w.log", "w.log.1", "w.log.2"]
    assert [(logs / name).read_text() for name in names] == ["line 5\n", "line 4\n", "line 3\n"]
    again = LogFile(logs / "w.log", LogTrouble(print))
    again.write(b"more\n")
    again.close()
    assert (logs / "w.log").read_text() == "line 5\nmore\n"

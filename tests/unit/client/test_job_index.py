"""Jobs by name and by folder, and who holds a folder's lock."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edlz.client.arguments.completion import complete_checkpoint, complete_job
from edlz.client.commands.resume import run_resume
from edlz.client.job_files.job_index import earlier_runs, find_job, forget, list_jobs, remember
from edlz.client.local import job_lock
from edlz.client.local.job_directory import hold_idle_job, open_job_directory
from edlz.client.local.job_lock import LockHolder, lock_holder, master_by_hand, take_lock
from edlz.services.errors import ConfigError, EdlzError
from tests import builders


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def make_job(path: Path, settings: str = "") -> Path:
    path.mkdir(parents=True)
    (path / ".edlz-job").touch()
    (path / "job.yaml").write_text(settings)
    return path


def run(name: str, folder: str = "") -> Path:
    """A job that begins and ends."""
    config = builders.settings(job_name=name, job_dir=folder)
    with open_job_directory(config) as opened:
        return opened.path


def names() -> list[tuple[str, Path, str]]:
    return [(job.name, job.path, job.word) for job in list_jobs()]


# ---------------------------------------------------------------- names


def test_jobs_at_home_and_elsewhere(home: Path, tmp_path: Path) -> None:
    assert names() == []
    first, second = run("mnist"), run("census", str(tmp_path / "disk" / "census"))
    assert first == home / "jobs" / "mnist"
    assert second == tmp_path / "disk" / "census"
    assert names() == [("census", second, "census"), ("mnist", first, "mnist")]
    assert find_job("census").path == second
    assert find_job("mnist").path == find_job(str(first)).path == first


def test_a_relative_folder_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run("mnist", "run")
    assert path == tmp_path / "here" / "run"
    monkeypatch.chdir(tmp_path)
    assert find_job("mnist").path == path
    assert find_job("here/run").name == "mnist"


def test_the_newest_job_of_a_name_has_it(home: Path, tmp_path: Path) -> None:
    old, new = run("mnist"), run("mnist", str(tmp_path / "disk"))
    assert find_job("mnist").path == new
    assert names() == [("mnist", old, str(old)), ("mnist", new, "mnist")]
    assert find_job(str(old)).word == str(old)
    run("mnist")
    assert find_job("mnist").path == old
    assert names() == [("mnist", old, "mnist")]
    assert find_job(str(new)).name == "mnist"


def test_a_job_whose_folder_is_gone_is_forgotten(home: Path, tmp_path: Path) -> None:
    path = run("mnist", str(tmp_path / "disk"))
    path.rename(tmp_path / "moved")
    assert (home / "index" / "mnist").exists()
    with pytest.raises(EdlzError):
        find_job("mnist")
    assert not (home / "index" / "mnist").exists()
    assert find_job(str(tmp_path / "moved")).name == "mnist"


@pytest.mark.parametrize("content", ["", "relative/folder", "\0", "/"])
def test_an_index_entry_that_says_nothing_is_no_job(content: str, home: Path) -> None:
    (home / "index").mkdir(parents=True)
    (home / "index" / "mnist").write_text(content)
    assert names() == []


def test_forgetting_leaves_the_entry_of_a_newer_job(home: Path, tmp_path: Path) -> None:
    run("mnist", str(tmp_path / "a"))
    old = find_job("mnist")
    run("mnist", str(tmp_path / "b"))
    forget(old)
    assert find_job("mnist").path == tmp_path / "b"
    forget(find_job("mnist"))
    assert list((home / "index").iterdir()) == []


def test_a_home_that_cannot_be_written_to_does_not_stop_a_job(home: Path, tmp_path: Path) -> None:
    home.write_text("a file")
    remember("mnist", tmp_path / "disk")
    assert home.read_text() == "a file"
    assert names() == [], "it is found by its folder alone"


def test_earlier_runs_are_listed_apart(home: Path, tmp_path: Path) -> None:
    for _ in range(3):
        run("mnist")
        elsewhere = run("census", str(tmp_path / "disk"))
    assert [job.name for job in list_jobs()] == ["census", "mnist"]
    found = {job.name: job for job in earlier_runs()}
    assert set(found) == {"mnist.1", "mnist.2", "disk.1", "disk.2"}
    assert all(job.is_earlier for job in found.values())
    assert found["disk.1"].word == str(elsewhere.with_name("disk.1"))
    assert find_job("mnist.1") == found["mnist.1"]
    assert find_job(found["disk.1"].word) == found["disk.1"]


def test_other_folders_are_no_jobs(home: Path) -> None:
    for name in ("empty", "mnist.backup", "a b", ".hidden"):
        (home / "jobs" / name).mkdir(parents=True)
    (home / "jobs" / "file").touch()
    make_job(home / "jobs" / ".hidden2")
    assert names() == []


@pytest.mark.parametrize("text", ["", ".", "..", "/", "jobs/mnist", "../jobs/mnist", "no", "mnist/", "a\0b"])
def test_what_names_no_job(text: str, home: Path) -> None:
    make_job(home / "jobs" / "mnist")
    with pytest.raises(EdlzError) as raised:
        find_job(text)
    assert raised.value.exit_code == 4
    assert raised.value.message == f'no job "{text}"'


def test_near_names_come_first(home: Path) -> None:
    for name in ("mnist", "mnist-2", "census"):
        make_job(home / "jobs" / name)
    with pytest.raises(EdlzError) as raised:
        find_job("mnits")
    assert raised.value.help.startswith("did you mean mnist")
    with pytest.raises(EdlzError) as raised:
        find_job("zzz")
    assert raised.value.help == "jobs here: census, mnist, mnist-2"


def test_a_job_knows_its_checkpoints(home: Path, tmp_path: Path) -> None:
    path = make_job(home / "jobs" / "mnist")
    assert find_job("mnist").checkpoint_directory() == path / "checkpoints"
    (path / "job.yaml").write_text(f"checkpoint_dir: {tmp_path}/ckpt\n")
    assert find_job("mnist").checkpoint_directory() == tmp_path / "ckpt"


@pytest.mark.parametrize(
    "text", [b"\xff: [", b"- a", b"[" * 3000, b"seed: 2001-99-99", b"seed: !!bool x", b"seed: !!timestamp x"]
)
def test_settings_that_cannot_be_read_are_none(home: Path, text: bytes) -> None:
    (make_job(home / "jobs" / "mnist") / "job.yaml").write_bytes(text)
    assert find_job("mnist").settings() == {}


def test_resume_takes_a_job_from_elsewhere_and_refuses_one_by_hand(home: Path) -> None:
    with pytest.raises(EdlzError) as raised:
        run_resume("mnist", [])
    assert raised.value.exit_code == 4
    by_hand = home / "jobs" / "mnist"
    by_hand.mkdir(parents=True)
    (by_hand / "journal.sqlite").touch()
    with pytest.raises(ConfigError, match=r"holds no job\.yaml to go on with"):
        run_resume("mnist", [])


def test_completion(home: Path, tmp_path: Path) -> None:
    run("mnist")
    run("moons", str(tmp_path / "disk"))
    (tmp_path / "here" / "models").mkdir()
    assert complete_job("m") == ["mnist", "moons"]
    assert complete_job("mo") == ["moons"]
    assert complete_checkpoint("mo") == ["moons", "models/"]


# ---------------------------------------------------------------- locks


@contextmanager
def another_process(place: Path) -> Iterator[int]:
    """A process that holds a lock file, as a supervisor does."""
    program = (
        "import fcntl, sys\n"
        f"lock = open({str(place)!r}, 'a+')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process.pid
    finally:
        process.communicate("")


def test_who_runs_a_job(home: Path) -> None:
    config = builders.settings(job_name="mnist")
    assert lock_holder(config.job_directory) is None
    with open_job_directory(config) as folder:
        holder = lock_holder(folder.path)
        assert holder == LockHolder(os.getpid(), folder.sockets)
        assert holder.endpoint("master") == folder.endpoint("master")
    assert lock_holder(folder.path) is None


def test_a_lock_that_was_left_behind_is_held_by_nobody(home: Path) -> None:
    path = make_job(home / "jobs" / "mnist")
    (path / "lock").write_text(json.dumps({"pid": os.getpid(), "sockets": "/tmp"}))
    assert lock_holder(path) is None


@pytest.mark.parametrize(
    "content", ["", "x", "[]", '{"pid": "7"}', '{"pid": 0}', '{"pid": 1}', '{"pid": -1}']
)
def test_no_pid_is_made_up(content: str, home: Path) -> None:
    path = make_job(home / "jobs" / "mnist")
    (path / "lock").write_text(content)
    with another_process(path / "lock"):
        assert lock_holder(path) == LockHolder(None, None)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not tell")
def test_the_pid_of_a_run_before_is_not_taken_for_the_holder(home: Path) -> None:
    path = make_job(home / "jobs" / "mnist")
    (path / "lock").write_text(json.dumps({"pid": os.getpid(), "sockets": "/tmp"}))
    with another_process(path / "lock") as pid:
        assert lock_holder(path) == LockHolder(None, None)
        (path / "lock").write_text(json.dumps({"pid": pid, "sockets": "/tmp/edlz-x"}))
        assert lock_holder(path) == LockHolder(pid, Path("/tmp/edlz-x"))


def test_looking_never_keeps_a_job_from_beginning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_job(home / "jobs" / "mnist")
    looker = os.open(path / "lock", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(looker, fcntl.LOCK_SH)
    tries: list[int] = []

    def seen_once(lock: int) -> dict[str, object]:
        tries.append(lock)
        fcntl.flock(looker, fcntl.LOCK_UN)  # it has seen enough
        return {}

    monkeypatch.setattr(job_lock, "read_lock", seen_once)
    os.close(take_lock(path, "mnist"))
    os.close(looker)
    assert len(tries) == 1


def test_a_job_is_not_begun_while_it_is_held(home: Path) -> None:
    path = make_job(home / "jobs" / "mnist")
    config = builders.settings(job_name="mnist")
    with hold_idle_job(path, "mnist"):
        with pytest.raises(ConfigError, match="is running"), open_job_directory(config):
            pass
        assert lock_holder(path) == LockHolder(os.getpid(), None)
    assert not (path / "lock").exists()


def test_a_master_that_was_started_by_hand(home: Path) -> None:
    path = make_job(home / "jobs" / "mnist")
    assert master_by_hand(path) is None
    (path / "master.lock").write_text("77")
    assert master_by_hand(path) is None
    with (path / "master.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert master_by_hand(path) == "77"
        with pytest.raises(ConfigError, match=r"run by a master .*pid 77"), hold_idle_job(path, "mnist"):
            pass

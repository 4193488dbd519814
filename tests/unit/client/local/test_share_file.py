"""The file in which jobs meet to share slots: seen by several jobs of this process, and by others' processes."""

import fcntl
import json
import os
import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from edlz.client.local.share.share_file import LocalSlots
from edlz.services.errors import ConfigError


def file_of(home: Path) -> Path:
    return home / f"slots-{platform.node()}.json"


def jobs_in(home: Path) -> list[str]:
    return [entry["job"] for entry in json.loads(file_of(home).read_text())]


def fate(path: Path) -> tuple[int, int]:
    """What changes whenever a file is written."""
    about = path.stat()
    return about.st_ino, about.st_mtime_ns


def test_a_higher_job_takes_a_slot_when_it_is_let_go_and_gives_it_back(tmp_path: Path) -> None:
    said: list[str] = []
    low = LocalSlots(tmp_path, "low", 2, (-1,), label="low")
    assert (low.room(2, 0), low.room(2, 2)) == (2, 2)
    high = LocalSlots(tmp_path, "high", 2, (1,), label="high", say=said.append)
    assert [high.room(0, 0), high.room(1, 0), high.room(1, 0)] == [0, 0, 0]
    assert said == ['waiting for a slot: 2 of 2 are taken by "low" (priority low)']
    assert low.room(2, 2) == 1
    assert high.room(1, 0) == 0
    assert low.room(2, 1) == 1
    assert high.room(1, 0) == 1
    assert low.room(2, 1) == 1
    high.leave()
    assert low.room(2, 1) == 2
    assert len(said) == 1


def test_nothing_is_written_when_nothing_changes(tmp_path: Path) -> None:
    slots, other = LocalSlots(tmp_path, "a", 2), LocalSlots(tmp_path, "b", 2)
    for _ in range(2):
        slots.room(2, 2)
        other.room(1, 0)
    before = fate(file_of(tmp_path))
    assert (slots.room(2, 2), other.room(1, 0)) == (2, 0)
    assert fate(file_of(tmp_path)) == before
    slots.room(2, 1)
    assert fate(file_of(tmp_path)) != before


def test_a_job_whose_process_has_ended_is_no_more(tmp_path: Path) -> None:
    program = f"""
        import pathlib
        from edlz.client.local.share.share_file import LocalSlots
        print(LocalSlots(pathlib.Path({str(tmp_path)!r}), "killed", 2).room(2, 0), flush=True)
        input()
    """
    slots = LocalSlots(tmp_path, "a", 2)
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "2\n"
        assert slots.room(1, 0) == 0
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie has ended too
        assert slots.room(1, 0) == 1
        assert jobs_in(tmp_path) == ["a"]


def test_a_process_that_only_has_the_number_of_one_that_ended_is_another(tmp_path: Path) -> None:
    ended = LocalSlots(tmp_path, "ended", 1)
    assert ended.room(1, 1) == 1
    entries = json.loads(file_of(tmp_path).read_text())
    entries[0]["start"] -= 1
    file_of(tmp_path).write_text(json.dumps(entries))
    assert LocalSlots(tmp_path, "a", 1).room(1, 0) == 1
    assert jobs_in(tmp_path) == ["a"]


@pytest.mark.parametrize("text", ["", "{", "[3]", '[{"pid": "x"}]'])
def test_a_damaged_file_is_begun_anew(text: str, tmp_path: Path) -> None:
    slots = LocalSlots(tmp_path, "a", 2)
    slots.room(2, 2)
    file_of(tmp_path).write_text(text)
    assert slots.room(2, 2) == 2
    assert jobs_in(tmp_path) == ["a"]


def test_nobody_waits_for_the_lock(tmp_path: Path) -> None:
    """A job that was stopped (Ctrl-Z) while it held the lock must not stop the others."""
    slots, other = LocalSlots(tmp_path, "a", 2), LocalSlots(tmp_path, "b", 2)
    assert slots.room(1, 1) == 1
    with file_of(tmp_path).with_suffix(".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert slots.room(2, 1) == 1
        assert other.room(1, 0) == 0
        other.leave()
    assert slots.room(2, 1) == 2


def test_a_file_that_cannot_be_written_leaves_the_job_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slots = LocalSlots(tmp_path, "a", 2)
    assert slots.room(1, 1) == 1
    obstacle = file_of(tmp_path).with_name(f".{file_of(tmp_path).name}.{os.getpid()}.tmp")
    obstacle.mkdir()
    assert [slots.room(2, 1), slots.room(2, 1)] == [1, 1]
    assert len(caplog.records) == 1
    assert "the job goes on with room=1" in caplog.text
    obstacle.rmdir()
    assert slots.room(2, 1) == 2


def test_a_home_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used") as raised:
        LocalSlots(tmp_path / "file", "a", 2)
    assert raised.value.help == "name another folder: EDLZ_HOME=DIR"

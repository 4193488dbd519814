"""Jobs that do not end by themselves: stopped, deaf, or left over by a supervisor that was killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edlz.client.cli import main
from edlz.client.commands import stop
from edlz.client.local import job as local_job
from edlz.client.local.job_directory import open_job_directory
from edlz.client.local.launching.processes import Process, kill, process_of, started_at
from edlz.services.configuration.job_config import JobConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less of processes")

# A supervisor that hears no signal, and a service of it, which has started something itself; all tell their pids.
SUPERVISOR = """
import os, signal, subprocess, sys
from edlz.client.local.job_directory import open_job_directory
from edlz.client.local.launching.process_launcher import service_environment
from edlz.services.configuration.job_config import JobConfig

signal.signal(signal.SIGTERM, signal.SIG_IGN)
service = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import signal; signal.pause()'])"
with open_job_directory(JobConfig(job_name="mnist", model_def="a.b", training_data="x")) as folder:
    (folder.path / "journal.sqlite").touch()
    environment = service_environment(os.environ, folder.scratch)
    child = subprocess.Popen([sys.executable, "-c", service], env=environment, process_group=0)
    print(child.pid, flush=True)
    signal.pause()
"""
LIMIT_S = 20.0

Started = tuple["subprocess.Popen[str]", list[Process]]


def until(condition: Callable[[], object], what: str) -> object:
    end = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return value


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """The supervisor, and the processes of its service."""
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_job, "NOW_S", 0.1)
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    service = int(supervisor.stdout.readline())
    (grandchild,) = until(lambda: children_of(service), "the service starts nothing")  # type: ignore[misc]
    found = [process for pid in (service, grandchild) if (process := process_of(pid))]
    assert len(found) == 2
    yield supervisor, found
    for process in found:
        kill(process)
    supervisor.kill()
    supervisor.communicate()


def is_over(started: Started) -> bool:
    supervisor, services = started
    return supervisor.wait(LIMIT_S) == -signal.SIGKILL and not any(process.is_alive for process in services)


@pytest.mark.parametrize("state", ["deaf", "stopped"])
def test_stop_now(state: str, started: Started, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if state == "stopped":
        started[0].send_signal(signal.SIGSTOP)
    assert main(["stop", "mnist", "--now"]) == 0
    assert is_over(started)
    assert "interrupted before it could save" in capsys.readouterr().out
    assert not (tmp_path / "home" / "jobs" / "mnist" / "lock").exists()
    with open_job_directory(JobConfig(job_name="mnist"), is_resumed=True):
        pass  # it can go on


def test_what_a_killed_supervisor_has_left_over(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    started[0].kill()
    started[0].wait(LIMIT_S)
    assert all(process.is_alive for process in started[1])
    assert main(["stop", "mnist"]) == 2
    assert main(["stop", "mnist", "--now"]) == 0
    assert not any(process.is_alive for process in started[1])
    assert main(["stop", "mnist", "--now"]) == 2
    assert 'error: job "mnist" is not running' in capsys.readouterr().err


@pytest.mark.parametrize("is_running", [True, False])
def test_rm_by_force(*, is_running: bool, started: Started, tmp_path: Path) -> None:
    if not is_running:
        started[0].kill()
    assert main(["rm", "mnist", "--force"]) == 0
    assert is_over(started)
    assert not (tmp_path / "home" / "jobs" / "mnist").exists()


def test_a_job_that_does_not_stop_names_the_way(
    started: Started, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "PATIENCE_S", 0.01)
    waits = local_job.JobHere.wait

    def wait(job: local_job.JobHere, limit_s: float | None = None) -> bool:
        if limit_s is None:
            started[0].kill()
        return waits(job, limit_s)

    monkeypatch.setattr(local_job.JobHere, "wait", wait)
    assert main(["stop", "mnist"]) == 0
    assert "mnist does not end yet; to kill it: edlz stop mnist --now\n" in capsys.readouterr().err


def test_a_number_that_another_process_has_got_is_left_alone(started: Started) -> None:
    process = started[1][0]
    kill(Process(process.pid, process.start - 1))
    assert process.is_alive
    kill(process)
    until(lambda: not process.is_alive, "it was not killed")
    assert started_at(process.pid) is None
    kill(process)  # nothing any more
    assert process_of(os.getpid()) is not None

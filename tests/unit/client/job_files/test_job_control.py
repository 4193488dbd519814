"""Commands that act on a job that runs: scale, wait and stop."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edlz.client.cli import main
from edlz.client.job_files.job_index import find_job
from edlz.client.local import job_actions, master_line
from edlz.client.local.job_directory import open_job_directory
from edlz.client.screen.job_view import exit_code_of
from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.job_status import (
    FailureView,
    JobStatus,
)
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import ScaleRequest
from tests.k8s.any_cluster import wait_for
from tests.unit.client.job_homes import RUNNING, config, ended, master, training


def test_scale(capsys: pytest.CaptureFixture[str]) -> None:
    with open_job_directory(config()) as folder, master(folder, training) as asked:
        assert main(["scale", "mnist", "--workers", "4"]) == 0
        assert main(["scale", "--workers=5"]) == 0
        assert main(["scale", "--workers=9"]) == 2
    assert [body.workers for body in asked if isinstance(body, ScaleRequest)] == [4, 5, 9]
    printed = capsys.readouterr()
    assert printed.out == (
        "mnist: 2 -> 4 workers.\nnext: edlz status mnist\n"
        "mnist: 2 -> 5 workers.  warning: why\nnext: edlz status mnist\n"
    )
    assert printed.err == "error: 9 workers are above --max_workers=8\nhelp: ask for 8\n"


def test_a_master_that_cannot_scale(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(body: Message) -> Message:
        if isinstance(body, ScaleRequest):
            raise RemoteProtocolError("a master takes no ScaleRequest")
        return RUNNING

    with open_job_directory(config()) as folder, master(folder, refuse):
        assert main(["scale", "--workers=3"]) == 1
    assert capsys.readouterr().err == "error: a master takes no ScaleRequest\n"


def test_scaling_without_an_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_actions, "ANSWER_S", 0.1)
    with open_job_directory(config()):
        assert main(["scale", "--workers=3"]) == 5
    assert capsys.readouterr().err.splitlines() == [
        'error: the master of job "mnist" did not answer within 0s: it starts, or restarts',
        "help: in a few seconds: edlz scale mnist --workers=3",
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"state": "Succeeded"}, 0),
        ({"state": "Stopped"}, 7),
        ({"state": "Failed"}, 1),
        ({"state": "Failed", "failure": FailureView(text="x", exit_code=70)}, 70),
        ({"state": "Failed", "failure": FailureView(text="x", exit_code=0)}, 1),
    ],
)
def test_the_code_of_wait(
    fields: dict[str, object], code: int, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = msgspec.structs.replace(RUNNING, **fields)
    ended(home, status)
    assert main(["wait", "mnist"]) == code == exit_code_of(status)
    assert f"mnist  {status.state}" in capsys.readouterr().out


def test_waiting_has_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    with open_job_directory(config()):
        assert main(["wait", "mnist", "--timeout=0.2"]) == 6
    assert capsys.readouterr().err.splitlines() == [
        'error: job "mnist" still runs (--timeout=0.2)',
        "help: edlz status mnist",
    ]


def test_waiting_for_a_job_that_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with supervisor("mnist", "Succeeded") as process:
        waiting = threading.Timer(0.0, process.terminate)
        waiting.start()
        assert main(["wait", "mnist"]) == 0
        waiting.join()
    assert "mnist  Succeeded" in capsys.readouterr().out


SUPERVISOR = """
import signal, sys, time
from edlz.client.local.job_directory import open_job_directory
from edlz.services.configuration.job_config import JobConfig

name, status, signals = sys.argv[1], sys.argv[2], int(sys.argv[3])
seen = []
signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
config = JobConfig(job_name=name, model_def="a.b", training_data="x", num_workers=2)
with open_job_directory(config) as folder:
    (folder.path / "journal.sqlite").touch()
    print("runs", flush=True)
    end = time.monotonic() + 60
    while len(seen) < signals:
        time.sleep(0.01)
        if time.monotonic() > end:
            sys.exit("the signals did not come")
    if status:
        (folder.path / "status.json").write_text(status)
"""


@contextmanager
def supervisor(name: str, state: str, signals: int = 1) -> Iterator["subprocess.Popen[str]"]:
    """A process that runs a job until it has got so many signals, and leaves the job in this state."""
    about = {"name": name, "state": state, "checkpoint": RUNNING.version, "target_workers": 2}
    status = msgspec.structs.replace(RUNNING, **about) if state else None
    text = msgspec.json.encode(status).decode() if status else ""
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, name, text, str(signals)],
        stdout=subprocess.PIPE,
        env=dict(os.environ),
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_stop(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    with supervisor("mnist", "Stopped") as process:
        assert main(["stop"]) == 0
        assert process.wait(20) == 0
    printed = capsys.readouterr()
    assert printed.err == "stopping mnist …\n"
    assert printed.out == (
        "Stopped  mnist at 59 %, epoch 2 of 2, v354. Nothing is lost.\n"
        "  go on   edlz resume mnist (or with fewer: edlz resume mnist --num_workers=1)\n"
        "  forget  edlz rm mnist\n"
        f"  logs    {home}/jobs/mnist/logs\n"
    )


def test_stop_now_sends_a_second_signal(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    with supervisor("mnist", "", signals=2) as process:
        assert main(["stop", "mnist", "--now"]) == 0
        assert process.wait(20) == 0
    printed = capsys.readouterr()
    assert printed.err == "killing mnist …\n"
    assert "interrupted before it could save" in printed.out


def test_stopping_all_asks_first(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["stop", "--all"]) == 0
    assert capsys.readouterr().out == "no job runs here\nnext: edlz ls\n"
    with supervisor("mnist", "Stopped") as first, supervisor("census", "Succeeded") as second:
        for answer, code in (("", 1), ("no\n", 1), ("y\n", 0)):
            assert first.poll() is second.poll() is None
            (tmp_path / "answer").write_text(answer)
            with (tmp_path / "answer").open() as stdin:
                monkeypatch.setattr(sys, "stdin", stdin)
                assert main(["stop", "--all"]) == code
        assert (first.wait(20), second.wait(20)) == (0, 0)
    printed = capsys.readouterr()
    assert printed.err.count("stop census, mnist? [y/N] ") == 3
    assert printed.err.count("nothing was stopped") == 2
    assert "Stopped  mnist" in printed.out
    assert "census  Succeeded" in printed.out


class Heard:
    """A screen that keeps what it is told."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.said: list[str] = []

    def update(self, status: JobStatus) -> None:
        self.states.append(status.state)

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(("state", "said"), [("Training", 1), ("Succeeded", 0)])
def test_who_watches_is_told_of_a_silent_master_but_not_of_one_whose_job_is_over(
    monkeypatch: pytest.MonkeyPatch, state: str, said: int
) -> None:
    monkeypatch.setattr(job_actions, "SILENT_S", 0.0)
    monkeypatch.setattr(master_line, "ANSWER_S", 0.05)
    unanswered: list[object] = []
    ask = master_line.ask

    async def counted(*about: Any) -> Any:
        answer = await ask(*about)
        unanswered.extend([about] if answer is None else [])
        return answer

    monkeypatch.setattr(master_line, "ask", counted)
    screen = Heard()
    with open_job_directory(config()) as folder:
        watching = threading.Thread(target=job_actions.follow_job, args=(find_job("mnist"), screen))
        with master(folder, lambda _: msgspec.structs.replace(RUNNING, state=state)):
            watching.start()
            wait_for(lambda: screen.states, "it is seen")
        unanswered.clear()
        wait_for(lambda: len(unanswered) >= 3, "nobody answers")
    watching.join()
    assert set(screen.states) == {state}
    assert len(screen.said) == said

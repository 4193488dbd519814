"""What is concluded from a job's status, its exit codes and the last lines of its logs."""

from pathlib import Path

import msgspec
import pytest

from edlz.client.local.verdict import Evidence, conclude, written_status
from edlz.client.screen.spans import UNICODE, plain
from edlz.services.protocol.job_status import (
    FailureView,
)
from edlz.services.protocol.messages import ProcessExit
from edlz.services.supervision.post_mortem import last_words
from tests.shown_jobs import DONE, STATUS, changed


def concluded(tmp_path: Path, **fields: object) -> tuple[str, bool, int]:
    evidence = Evidence("mnist", tmp_path, **fields)  # type: ignore[arg-type]
    lines, is_error, code = conclude(evidence, UNICODE, is_full=False)
    return plain(lines), is_error, code


def ended(name: str, code: int | None = 1, reason: str = "exit code 1") -> ProcessExit:
    return ProcessExit(name=name, code=code, reason=reason)


def test_success_needs_the_status_and_the_exit_code(tmp_path: Path) -> None:
    assert concluded(tmp_path, status=DONE, master=ended("master", 0))[1:] == (False, 0)
    assert concluded(tmp_path, status=DONE, master=ended("master", 1))[1:] == (True, 1)
    assert concluded(tmp_path, status=STATUS, master=ended("master", 0))[1:] == (True, 1)
    assert concluded(tmp_path, status=DONE)[1:] == (False, 0)


def test_a_report_is_named_if_the_master_has_left_one(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    assert "edlz open" not in concluded(logs, status=DONE)[0]
    (tmp_path / "report.html").write_text("<html>")
    assert "  report   edlz open mnist\n" in concluded(logs, status=DONE)[0]


@pytest.mark.parametrize(("signal", "code"), [(2, 130), (15, 143)])
def test_a_signal_decides_the_code(signal: int, code: int, tmp_path: Path) -> None:
    text, _, found = concluded(tmp_path, status=STATUS, signal=signal, master=ended("master", 0))
    assert found == code
    assert "Stopped" in text


def test_the_masters_reason_is_shown_and_its_traceback_kept(tmp_path: Path) -> None:
    failure = FailureView(text="task 1 failed", error="ValueError: x", traceback="Traceback …", exit_code=3)
    text, is_error, code = concluded(tmp_path, status=changed(state="Failed", failure=failure))
    assert (is_error, code) == (True, 3)
    assert "ValueError: x" in text
    assert (tmp_path / "failure.txt").read_text() == "Traceback …\n"


def test_a_master_that_says_why_it_cannot_begin_is_quoted(tmp_path: Path) -> None:
    tails = {"master": ["error: the disk is full", "help: make room"]}
    text, _, code = concluded(tmp_path, master=ended("master", 2, "exit code 2"), tails=tails)
    assert code == 2
    assert text.splitlines()[0] == 'error: job "mnist" failed: the disk is full'
    assert text.splitlines()[-1] == "help: make room"


def test_the_first_process_that_crashed_gives_the_reason_the_master_does_not_know(tmp_path: Path) -> None:
    tails = {
        "worker-0": [
            "Traceback (most recent call last):",
            '  File "/models/model.py", line 7, in custom_model',
            '  File "/x/site-packages/keras/layers.py", line 99, in call',
            "RuntimeError: no such layer",
        ]
    }
    status = changed(state="Failed", failure=FailureView(text="no worker is left", process="worker-0"))
    text, _, _ = concluded(
        tmp_path, status=status, master=ended("master"), first_crash=ended("worker-0"), tails=tails
    )
    assert 'error: job "mnist" failed: no worker is left\n' in text
    assert "/models/model.py:7 in custom_model" in text
    assert "RuntimeError: no such layer" in text
    assert f"{tmp_path}/worker-0.log" in text


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("exit code 0", "it left no reason, as os._exit() leaves none; its log:"),
        ("killed by signal 9 (SIGKILL)", "it left no reason; its log:"),
    ],
)
def test_a_log_without_a_reason_is_not_offered_as_one(tmp_path: Path, reason: str, told: str) -> None:
    tails = {"worker-0": ["[2026-11-28 20:55:04,295] [INFO] [service.py:299:_build] building the model"]}
    failure = FailureView(text=f"no worker is left: worker-0 {reason}", process="worker-0")
    text, _, _ = concluded(tmp_path, status=changed(state="Failed", failure=failure), tails=tails)
    assert text.splitlines()[-1] == f"help: {told} {tmp_path}/worker-0.log"


def test_what_the_master_knows_of_a_failure_is_not_said_again_by_a_log(tmp_path: Path) -> None:
    tails = {"worker-0": ["Traceback (most recent call last):", "ValueError: x"]}
    failure = FailureView(text="loss() raised ValueError: x", where="/models/model.py:3 in loss")
    status = changed(state="Failed", failure=failure)
    text, _, _ = concluded(
        tmp_path, status=status, master=ended("master"), first_crash=ended("worker-0"), tails=tails
    )
    assert text.count("ValueError: x") == 1
    assert "worker-0" not in text


def test_a_killed_master(tmp_path: Path) -> None:
    killed = ended("master", None, "killed by signal 9 (SIGKILL)")
    text, _, code = concluded(tmp_path, status=STATUS, master=killed)
    assert code == 1
    assert 'error: job "mnist" failed: master ended: killed by signal 9 (SIGKILL)' in text


def test_last_words() -> None:
    assert last_words([]).error == ""
    assert last_words(["a", "b", "--- ended after 1s: exit code 1"]).error == "b"
    assert last_words(["x", "error: y", "help: z"])[:] == ("y", "", "z")
    autograph = [
        "Traceback (most recent call last):",
        "TypeError: in user code:",
        "",
        "    ValueError: bad shape",
    ]
    assert last_words(autograph).error == "ValueError: bad shape"


def test_the_written_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert written_status(tmp_path) is None
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(DONE))
    assert written_status(tmp_path) == DONE
    (tmp_path / "status.json").write_text("[")
    assert written_status(tmp_path) is None
    assert "warning: " in capsys.readouterr().err

"""Commands that look at jobs: ls, status and watch, and which job is meant."""

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from edlz.client.cli import main
from edlz.client.job_files.preflight import Preflight
from edlz.client.job_files.resumption import resumed_settings
from edlz.client.local.job_directory import open_job_directory
from edlz.client.local.run import service_command
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.job_config import NO_LIMIT
from edlz.services.configuration.problems import InvalidConfigError
from edlz.services.master.journal.journal import Journal
from edlz.services.protocol.job_status import (
    StatusRequest,
)
from tests import builders
from tests.unit.client.job_homes import PLAN, RUNNING, config, ended, master, training


def test_a_live_job_is_asked(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    ended(home, msgspec.structs.replace(RUNNING, state="Succeeded", ratio=1.0, started_at=50.0), "done")
    with open_job_directory(config()) as folder, master(folder, training) as asked:
        assert main(["ls"]) == 0
        listed = capsys.readouterr().out
        assert main(["status"]) == 0  # the one that runs
        shown = capsys.readouterr().out
        assert main(["status", "-v"]) == 0
        more = capsys.readouterr().out
        assert main(["status", "mnist", "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(["ls", "-o", "json"]) == 0
        both = json.loads(capsys.readouterr().out)
    assert all(isinstance(body, StatusRequest) for body in asked)
    assert [line.split()[:5] for line in listed.splitlines()[1:3]] == [
        ["mnist", "Training", "59", "%", "1/2"],
        ["done", "Succeeded", "100", "%", "0/2"],
    ]
    assert "mnist  Training  59 %  epoch 2/2  v354" in shown
    assert "worker-0 joined." in shown
    assert "FOLDER" in more
    assert "FOLDER" not in shown
    assert "next: edlz logs -f mnist    edlz stop mnist\n" in shown
    assert (found["job"]["state"], found["job"]["pid"]) == ("Training", os.getpid())
    assert [job["job"]["state"] for job in both["jobs"]] == ["Succeeded", "Training"]


def test_a_master_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with open_job_directory(config()) as folder:
        assert main(["status"]) == 0
        assert "the master starts: no answer yet" in capsys.readouterr().out
        (folder.path / "journal.sqlite").touch()
        assert main(["status"]) == 0
        assert "the master restarts: no answer yet" in capsys.readouterr().out


def test_the_last_word_of_a_master_counts_while_its_supervisor_leaves(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_job_directory(config()) as folder:
        status = msgspec.structs.replace(RUNNING, state="Succeeded")
        (folder.path / "status.json").write_bytes(msgspec.json.encode(status))
        assert main(["status"]) == 0
    assert "mnist  Succeeded" in capsys.readouterr().out


def test_a_job_whose_supervisor_was_killed(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    path = ended(home, RUNNING)  # what a master that was told to leave has written
    for _ in range(2):
        assert main(["status", "mnist"]) == 0
        shown = capsys.readouterr().out
        assert "mnist  Stopped" in shown
        assert "interrupted before it could save" in shown
        assert "next: edlz resume mnist" in shown
        (path / "status.json").unlink(missing_ok=True)
    assert main(["wait", "mnist"]) == 7


def test_a_job_keeps_its_age_while_no_master_speaks(capsys: pytest.CaptureFixture[str]) -> None:
    with open_job_directory(config()) as folder:
        job = builders.job(PLAN, name="mnist")
        with Journal(folder.path / "journal.sqlite") as journal:
            journal.begin(job, at=time.time() - 3 * 86400)
        assert main(["ls"]) == 0
    assert "  local  3d   the master restarts" in capsys.readouterr().out


def test_a_job_that_has_succeeded_is_not_resumed(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    status = msgspec.structs.replace(RUNNING, state="Succeeded", version=7, digest="0123456789abcdef")
    path = ended(home, status)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    assert main(["resume", "mnist", "--num_workers=3"]) == 0
    said = 'job "mnist" has succeeded already (v7, digest 01234567): nothing is left to do\n'
    assert capsys.readouterr().out == said
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before
    assert main(["resume", "mnist", "--num_epochs=9", "--num_workres=3"]) == 2
    said = capsys.readouterr().err
    assert "error: --num_epochs cannot be changed by resume: it is part of what the job trains" in said
    assert "error: no flag --num_workres\nhelp: did you mean --num_workers?" in said


def test_a_job_from_before_may_have_a_longer_name(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    """The limit of a name is for new jobs: what there is goes on, is shown and read from, and can be removed."""
    name = "m" * 45
    with open_job_directory(config(name)) as folder:
        path = folder.path
        (path / "status.json").write_bytes(
            msgspec.json.encode(msgspec.structs.replace(RUNNING, name=name, state="Stopped"))
        )
    goes_on = resumed_settings(path / "job.yaml", ["--num_workers=1"], [], lambda _: Preflight())
    assert (goes_on.job_name, goes_on.num_workers) == (name, 1)
    assert read_config(service_command(goes_on, folder, "master")[3:], "master", {}).errors == ()
    for command in (["ls"], ["status", name], ["rm", name, "--force"]):
        assert main(command) == 0
        assert name in capsys.readouterr().out
    assert not path.exists()
    assert main(["train", "--model_def=a.b", "--training_data=x", f"--job_name={name}"]) == 2
    assert f'--job_name="{name}" is no job name: a-z, 0-9 and - (at most 40)' in capsys.readouterr().err


def test_a_job_goes_on_without_its_parameter_servers(home: Path) -> None:
    """What was kept for them alone gives way; what is given now counts."""
    strategy = "--distribution_strategy=AllreduceStrategy"
    with open_job_directory(replace(config(), num_ps_pods=2)) as folder:
        kept = folder.path / "job.yaml"
        goes_on = resumed_settings(kept, [strategy], [], lambda _: Preflight())
        assert (goes_on.is_allreduce, goes_on.num_ps_pods) == (True, 0)
        assert goes_on.embedding_threshold_bytes == NO_LIMIT
        with pytest.raises(InvalidConfigError, match="--num_ps_pods=3 with --distribution_strategy="):
            resumed_settings(kept, [strategy, "--num_ps_pods=3"], [], lambda _: Preflight())


def test_a_job_that_never_began_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    with open_job_directory(config()) as folder:
        (folder.logs / "master.log").write_text("error: no such data\nhelp: look again\n--- ended after 1s\n")
    assert main(["status", "mnist"]) == 0
    shown = capsys.readouterr().out
    assert "mnist  Failed" in shown
    assert 'error: job "mnist" failed: no such data' in shown
    assert "help: look again" in shown
    assert main(["wait", "mnist"]) == 1


def test_earlier_runs_are_shown_when_asked_for(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    done = msgspec.structs.replace(RUNNING, state="Succeeded")
    ended(home, done)
    ended(home, done)
    assert main(["ls"]) == 0
    assert "mnist.1" not in capsys.readouterr().out
    assert main(["ls", "--all"]) == 0
    assert "mnist.1" in capsys.readouterr().out
    assert main(["status", "mnist.1"]) == 0
    assert "next: edlz logs mnist.1\n" in capsys.readouterr().out


def test_which_job_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 2
    assert "error: which job? no job runs here now\n" in capsys.readouterr().err
    with open_job_directory(config()), open_job_directory(config("census")):
        assert main(["status"]) == 2
        assert capsys.readouterr().err.splitlines() == [
            "error: which job? 2 jobs run here now",
            "help: name one of: census, mnist",
        ]


def test_watching_in_a_pipe(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    """With -o json an object a line, to the end of the job."""
    running = threading.Event()
    may_end = threading.Event()

    def run() -> None:
        with open_job_directory(config()) as folder, master(folder, training) as asked:
            running.set()
            while not asked:
                may_end.wait(0.01)
            (folder.path / "status.json").write_bytes(
                msgspec.json.encode(msgspec.structs.replace(RUNNING, state="Succeeded"))
            )

    job = threading.Thread(target=run)
    job.start()
    assert running.wait(20)
    assert main(["status", "--watch", "mnist", "-o", "json"]) == 0
    job.join()
    first, last = capsys.readouterr().out.split("\n", 1)
    assert (json.loads(first)["job"]["state"], json.loads(first)["events"]) == ("Training", [])
    assert json.loads(last.splitlines()[-1])["job"]["state"] == "Succeeded"


@pytest.mark.parametrize(
    ("argv", "code", "error", "help_line"),
    [
        (["status", "mnits"], 4, 'no job "mnits"', "did you mean mnist?"),
        (["logs", "mnits"], 4, 'no job "mnits"', "did you mean mnist?"),
        (["rm", "mnits"], 4, 'no job "mnits"', "did you mean mnist?"),
        (["stop", "mnist"], 2, 'job "mnist" is not running: Stopped', "edlz resume mnist"),
        (["scale", "mnist", "--workers=2"], 2, 'job "mnist" is not running: Stopped', "edlz resume mnist"),
        (
            ["status", "-o", "jsn"],
            2,
            '--output="jsn" is none of table, wide, json, yaml',
            "did you mean json?",
        ),
        (["ls", "-o", "xml"], 2, '--output="xml" is none of table, wide, json, yaml', "e.g. -o json"),
        (["logs", "--since=10x"], 2, '--since="10x" is not a duration', "e.g. --since=45s, 10m, 2h or 1d"),
        (["wait", "--timeout=soon"], 2, '--timeout="soon" is not a duration', None),
        (["logs", "--tail=-1"], 2, "--tail=-1 is below 0", "e.g. --tail=4"),
        (["scale", "--workers=x"], 2, '--workers="x" is not a whole number', "e.g. --workers=4"),
        (["scale"], 2, "--workers is missing", "e.g. --workers=4"),
        (["stop", "mnist", "--all"], 2, '--all stops every job: "mnist" is one too many', "edlz stop mnist"),
        (["logs", "mnist", "--worker=7"], 4, 'job "mnist" has no log of worker-7', "there are: master"),
        (["top", "mnist", "--watch"], 2, "no flag --watch", None),
    ],
)
def test_mistakes(
    argv: list[str],
    code: int,
    error: str,
    help_line: str | None,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = ended(home, msgspec.structs.replace(RUNNING, state="Stopped"))
    (path / "logs" / "master.log").touch()
    assert main(argv) == code
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"error: {error}"
    assert lines[1].startswith("help: ")
    assert help_line is None or lines[1:] == [f"help: {help_line}"]


@contextmanager
def master_by_hand(path: Path, endpoint: str, name: str = "mnist") -> Iterator[None]:
    """What a master that somebody started by hand has in its folder."""
    path.mkdir(parents=True)
    record = {"job_name": name, "endpoint": endpoint}
    with Journal(path / "journal.sqlite") as journal, (path / "master.lock").open("w") as lock:
        journal.begin(builders.job(PLAN, name=name, config=record))
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("77")
        lock.flush()
        yield


def test_a_job_by_hand_is_asked_where_its_journal_says(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        open_job_directory(config("elsewhere")) as folder,
        master(folder, training) as asked,
        master_by_hand(home / "jobs" / "mnist", folder.endpoint("master")),
        master_by_hand(home / "jobs" / "other", folder.endpoint("master"), "other"),
    ):
        assert main(["status", "mnist", "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(["status", "other"]) == 0  # the port that it had is another job's now
        shown = capsys.readouterr().out
        assert main(["stop", "mnist"]) == 2
    assert asked
    assert (found["job"]["state"], found["job"]["pid"]) == ("Training", 77)
    assert "the master, run by hand, does not answer at its journal's address" in shown
    assert 'error: job "mnist" was started by hand\n' in capsys.readouterr().err


def test_a_job_by_hand_is_waited_for_and_kept(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with master_by_hand(home / "jobs" / "mnist", "tcp://127.0.0.1:*"):
        assert main(["wait", "mnist", "--timeout=0.1"]) == 6
        (home / "jobs" / "mnist" / ".edlz-job").touch()
        assert main(["rm", "mnist"]) == 2
    assert "is run by a master" in capsys.readouterr().err


def test_help_after_a_wrong_word_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "mnist"]) == 2
    assert capsys.readouterr().err.endswith("help: edlz ls --help\n")

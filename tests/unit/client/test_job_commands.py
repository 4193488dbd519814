"""The commands on jobs, against a master that the test plays: what they print, send, and leave with."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from edlz.client.cli import main
from edlz.client.commands.job_list import Asked, asked_list
from edlz.client.jobs.preflight import Preflight
from edlz.client.jobs.resumption import resumed_settings
from edlz.client.local import job_actions
from edlz.client.local.job_directory import JobDirectory, open_job_directory
from edlz.client.local.live_status import LiveStatus
from edlz.client.local.run import service_command
from edlz.client.screen.job_view import exit_code_of
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, RemoteProtocolError
from edlz.services.master.journal.journal import Journal
from edlz.services.protocol.job_status import (
    EventView,
    FailureView,
    JobStatus,
    PartitionView,
    StatusRequest,
    WorkerView,
)
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Scaled, ScaleRequest
from edlz.services.protocol.plan import Shard
from edlz.services.transport.rpc import RpcServer
from tests import builders
from tests.command_logging import logging_restored

STATUS = JobStatus(
    name="mnist",
    state="Training",
    mode="sync",
    slots=2,
    started_at=100.0,
    now=122.0,
    ratio=0.59,
    epoch=2,
    epochs=2,
    version=354,
    workers=(WorkerView(id="0", state="training", task=7),),
    partitions=(PartitionView(id="0", state="serving", version=354),),
    events=(EventView(seq=3, at=110.0, kind="worker", text="worker-0 joined."),),
)


SHARDS = (Shard(name="a", first=0, count=9),)
PLAN = builders.plan(shards=SHARDS, records_per_task=2)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    for name in ("FORCE_COLOR", "EDLZ_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    with logging_restored():
        yield


def config(name: str = "mnist") -> JobConfig:
    return builders.settings(job_name=name, num_workers=2)


def ended(home: Path, status: JobStatus, name: str = "mnist") -> Path:
    """A job that has ended so."""
    with open_job_directory(config(name)) as folder:
        pass
    (folder.path / "journal.sqlite").touch()
    (folder.path / "status.json").write_bytes(msgspec.json.encode(status))
    return folder.path


@contextmanager
def master(folder: JobDirectory, answer: Callable[[Message], Message]) -> Iterator[list[Message]]:
    """A master of this job in a thread; yields what it was asked."""
    asked: list[Message] = []
    is_ready, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        def handle(to: object, body: Message) -> None:
            asked.append(body)
            server.reply(to, answer(body))

        server = RpcServer(folder.endpoint("master"), handle, role="master", job="mnist", linger_s=0.1)
        is_ready.set()
        await over.wait()
        server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_ready.wait(20)
        yield asked
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def training(body: Message) -> Message:
    assert isinstance(body, StatusRequest | ScaleRequest)
    if isinstance(body, ScaleRequest):
        if body.workers > 8:
            raise ConfigError(f"{body.workers} workers are above --max_workers=8", "ask for 8")
        return Scaled(before=2, after=body.workers, warning="why" if body.workers > 4 else "")
    return STATUS


# ---------------------------------------------------------------- looking at jobs


def test_a_live_job_is_asked(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    ended(home, msgspec.structs.replace(STATUS, state="Succeeded", ratio=1.0, started_at=50.0), "done")
    with open_job_directory(config()) as folder, master(folder, training) as asked:
        assert main(["ls"]) == 0
        listed = capsys.readouterr().out
        assert main(["status"]) == 0  # the one that runs
        shown = capsys.readouterr().out
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
        status = msgspec.structs.replace(STATUS, state="Succeeded")
        (folder.path / "status.json").write_bytes(msgspec.json.encode(status))
        assert main(["status"]) == 0
    assert "mnist  Succeeded" in capsys.readouterr().out


def test_a_job_whose_supervisor_was_killed(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    path = ended(home, STATUS)  # what a master that was told to leave has written
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
    status = msgspec.structs.replace(STATUS, state="Succeeded", version=7, digest="0123456789abcdef")
    path = ended(home, status)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    assert main(["resume", "mnist", "--num_workers=3"]) == 0
    said = 'job "mnist" has succeeded already (v7, digest 01234567): nothing is left to do\n'
    assert capsys.readouterr().out == said
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_a_job_from_before_may_have_a_longer_name(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    """The limit of a name is for new jobs: what there is goes on, is shown and read from, and can be removed."""
    name = "m" * 45
    with open_job_directory(config(name)) as folder:
        path = folder.path
        (path / "status.json").write_bytes(
            msgspec.json.encode(msgspec.structs.replace(STATUS, name=name, state="Stopped"))
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
    done = msgspec.structs.replace(STATUS, state="Succeeded")
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
                msgspec.json.encode(msgspec.structs.replace(STATUS, state="Succeeded"))
            )

    job = threading.Thread(target=run)
    job.start()
    assert running.wait(20)
    assert main(["status", "--watch", "mnist", "-o", "json"]) == 0
    job.join()
    first, last = capsys.readouterr().out.split("\n", 1)
    assert (json.loads(first)["job"]["state"], json.loads(first)["events"]) == ("Training", [])
    assert json.loads(last.splitlines()[-1])["job"]["state"] == "Succeeded"


# ---------------------------------------------------------------- scale


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
        return STATUS

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


# ---------------------------------------------------------------- wait, stop


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
    status = msgspec.structs.replace(STATUS, **fields)
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
    about = {"name": name, "state": state, "checkpoint": STATUS.version, "target_workers": 2}
    status = msgspec.structs.replace(STATUS, **about) if state else None
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


# ---------------------------------------------------------------- mistakes


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
    path = ended(home, msgspec.structs.replace(STATUS, state="Stopped"))
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


HEAVY = ("numpy", "zmq", "asyncio", "typer", "pydantic", "rich", "tensorflow", "kubernetes")


def imported_by(argv: list[str], home: Path) -> set[str]:
    """Return what a command has imported at its end, in a process of its own."""
    program = (
        "import json, sys\n"
        "from edlz.client.cli import main\n"
        "main(sys.argv[1:])\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *argv],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "EDLZ_HOME": str(home)},
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("argv", [["ls"], ["ls", "-o", "json", "--all"]])
def test_ls_imports_nothing_heavy_for_jobs_that_have_ended(home: Path, argv: list[str]) -> None:
    for state in ("Succeeded", "Failed", "Stopped"):
        ended(home, msgspec.structs.replace(STATUS, state=state), state.lower())
    assert not imported_by(argv, home) & set(HEAVY)


def test_ls_imports_nothing_heavy_for_jobs_that_run(home: Path) -> None:
    with open_job_directory(config()) as folder:
        LiveStatus(folder.sockets).note(STATUS, 0.0)
        assert not imported_by(["ls"], home) & set(HEAVY)


def test_a_list_shows_what_a_supervisor_has_just_heard(capsys: pytest.CaptureFixture[str]) -> None:
    with open_job_directory(config()) as folder, master(folder, training) as asked:
        left = LiveStatus(folder.sockets)
        left.note(msgspec.structs.replace(STATUS, ratio=0.5), 0.0)
        left.note(msgspec.structs.replace(STATUS, ratio=0.7), 0.9)  # not each of many
        assert main(["ls"]) == 0
        assert asked == []
        assert "mnist  Training  50 %" in capsys.readouterr().out
        left.note(msgspec.structs.replace(STATUS, state="Stopping", ratio=0.7), 0.9)
        assert main(["ls"]) == 0
        assert "mnist  Stopping  70 %" in capsys.readouterr().out
        assert main(["ls", "-o", "json"]) == 0
        assert len(asked) == 1, "scripts get the events too"
        assert json.loads(capsys.readouterr().out)["jobs"][0]["events"][0]["text"] == "worker-0 joined."


@pytest.mark.parametrize("content", ["", "{", None])
def test_what_a_supervisor_has_left_is_not_believed_for_long(
    content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_job_directory(config()) as folder, master(folder, training) as asked:
        LiveStatus(folder.sockets).note(msgspec.structs.replace(STATUS, ratio=0.1), 0.0)
        left = folder.sockets / "status.json"
        if content is None:
            os.utime(left, (0, left.stat().st_mtime - 60))
        else:
            left.write_text(content)
        assert main(["ls"]) == 0
        assert "mnist  Training  59 %" in capsys.readouterr().out
        assert len(asked) == 1


def test_training_reads_its_flags_without_what_only_completion_needs(home: Path) -> None:
    assert not imported_by(["train", "--num_workers=0"], home) & {"typer", "pydantic", "numpy", "zmq"}


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        ([], Asked()),
        (["--all", "-o", "json"], Asked(output="json", is_all=True)),
        (["--output=yaml", "--namespace", "a"], Asked(output="yaml", namespace="a")),
        (["-n", "a"], Asked(namespace="a")),
        (["-o"], None),
        (["-o", "--all"], None),
        (["-ojson"], None),  # Typer takes it
        (["-o=json"], None),
        (["mnist"], None),
        (["--al"], None),
    ],
)
def test_plain_arguments_of_ls_need_no_parser(argv: list[str], asked: Asked | None) -> None:
    assert asked_list(argv) == asked


def test_help_after_a_wrong_word_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "mnist"]) == 2
    assert capsys.readouterr().err.endswith("help: edlz ls --help\n")

"""What is said while a job starts: at once, and what it waits for after five seconds."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edlz.client.local.start_watch import StartWatch
from edlz.client.screen.first_sign import first_sign
from edlz.client.screen.screens import LiveScreen, PlainScreen, QuietScreen
from edlz.client.screen.spans import UNICODE
from edlz.services.configuration.job_config import JobConfig
from edlz.services.protocol.job_status import JobStatus, PartitionView, WorkerView

STARTING = JobStatus(name="mnist", state="Starting", mode="sync", slots=2, started_at=0.0, now=0.0, epochs=1)
ALL = ("master", "ps-0", "worker-0", "worker-1")
PS = (PartitionView(id="0", state="starting", version=0),)


def status(state: str = "Starting", *workers: str, **fields: Any) -> JobStatus:
    views = tuple(WorkerView(id=str(ident), state=each) for ident, each in enumerate(workers))
    return msgspec.structs.replace(STARTING, state=state, workers=views, **fields)


def said(watch: StartWatch, seen: JobStatus | None, running: tuple[str, ...], until: int) -> list[str]:
    return [text for second in range(until) if (text := watch.due(seen, running, float(second)))]


def test_what_is_waited_for_is_said_after_five_seconds_and_ever_more_seldom() -> None:
    watch = StartWatch(0.0)
    times = [second for second in range(200) if watch.due(None, ("master",), float(second))]
    assert times == [5, 15, 25, 35, 45, 55, 65, 125, 185]


@pytest.mark.parametrize(
    ("seen", "running", "text"),
    [
        (None, ("master",), "the master, which lists the data"),
        (status(), ALL, "ps-0"),
        (
            status("Starting", "starting", partitions=PS),
            ALL,
            "worker-0, worker-1: loading TensorFlow, building the model",
        ),
        (
            status("Training", "starting", "waiting", partitions=PS),
            ALL,
            "worker-0: loading TensorFlow, building the model",
        ),
        (
            status("Starting", "waiting", "waiting", partitions=PS),
            ALL,
            "the first values of the model's parameters",
        ),
        (
            status("Training", "training", "waiting", partitions=PS),
            ALL,
            "the first minibatch: TensorFlow traces the model",
        ),
        (
            status("Starting", partitions=PS),
            ("master", "ps-0", *(f"worker-{ident}" for ident in range(12))),
            "worker-0, worker-1, worker-2 and 9 more workers: loading TensorFlow, building the model",
        ),
    ],
)
def test_what_is_waited_for(seen: JobStatus | None, running: tuple[str, ...], text: str) -> None:
    assert said(StartWatch(0.0), seen, running, 6) == [f"waiting for {text} (5s)"]


def test_with_the_first_step_the_figures_speak() -> None:
    watch = StartWatch(0.0)
    before = status("Training", "training", minibatches=70, records=700, partitions=PS)  # resumed
    assert len(said(watch, before, ALL, 6)) == 1
    after = msgspec.structs.replace(before, minibatches=71, records=710)
    assert said(watch, after, ALL, 100) == []
    assert said(watch, before, ALL, 100) == [], "also when a step is lost again"


@pytest.mark.parametrize("state", ["Succeeded", "Failed", "Stopped", "Stopping"])
def test_nothing_is_waited_for_at_the_end(state: str) -> None:
    assert said(StartWatch(0.0), status(state), ALL, 100) == []


def test_where_it_is_shown() -> None:
    shown = {}
    for name, screen in (
        ("live", LiveScreen(terminal := io.StringIO(), 2, UNICODE, is_coloured=False)),
        ("quiet", QuietScreen(nothing := io.StringIO())),
    ):
        screen.open()
        screen.wait("waiting for the master (5s)")
        shown[name] = terminal.getvalue() if name == "live" else nothing.getvalue()
        screen.update(status())
        screen.wait("waiting for ps-0 (15s)")
        screen.close((), is_error=False)
    assert "waiting for the master (5s)" in shown["live"]
    assert "ps-0 (15s)" not in terminal.getvalue(), "the block says who is there"
    assert shown["quiet"] == ""


def test_plain_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        PlainScreen(io.StringIO(), 2).wait("waiting for the master (5s)")
    assert caplog.messages == ["waiting for the master (5s)"]


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_first_sign_goes_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    with first_sign(JobConfig(job_name="mnist"), "checking model and data"):
        assert terminal.getvalue() == " mnist: checking model and data …"
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("progress", ["quiet", "json"])
def test_where_only_the_end_is_wanted_there_is_no_first_sign(
    progress: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with first_sign(JobConfig(job_name="mnist", progress=progress), "checking model and data"):
        pass
    assert capsys.readouterr() == ("", "")


def test_the_first_sign_comes_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    program = (
        "import json, logging, sys\n"
        "from edlz.client.cli import main\n"
        "seen = []\n"
        "class Look(logging.Filter):\n"
        "    def filter(self, record):\n"
        "        seen.append((record.getMessage(), sorted({'numpy', 'zmq', 'typer'} & set(sys.modules))))\n"
        "        return True\n"
        "logging.getLogger('edlz.client.screen.first_sign').addFilter(Look())\n"
        "code = main(sys.argv[1:])\n"
        "print(json.dumps([code, seen]))\n"
    )
    argv = ["train", "--model_def=mnist.mnist_functional_api.custom_model", "--training_data=nowhere"]
    done = subprocess.run(
        [sys.executable, "-c", program, *argv], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    first, *_, last = done.stdout.splitlines()
    assert first.endswith("job=mnist-functional-api: checking model and data")
    code, seen = json.loads(last)
    assert code == 2
    assert seen == [["job=mnist-functional-api: checking model and data", []]]

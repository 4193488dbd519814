"""Live, plain, JSON and quiet screens: what each leaves of a whole job."""

import io
import json
import logging
from collections.abc import Iterator

import msgspec
import pytest

from edlz.client.screen.screens import JsonScreen, LiveScreen, PlainScreen, QuietScreen
from edlz.client.screen.spans import UNICODE
from edlz.client.screen.verdict_text import failure_block, success_block
from edlz.client.screen.wording import progress_line
from edlz.services.protocol.job_status import (
    EventView,
    FailureView,
)
from tests.shown_jobs import DONE, ENDING, STATUS, WORKERS, Terminal, block, changed

LOG_LINE = "[2026-05-04 09:12:14,170] [INFO] [worker.py:201:log_loss] Loss = 0.08, steps = 100"
WARNING_LINE = "[2026-05-04 09:12:14,170] [WARNING] [worker.py:201:push] slow"


@pytest.fixture
def logged() -> Iterator[list[str]]:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    log, keep = logging.getLogger("edlz.client.screen.screens"), Keep()
    level = log.level
    log.addHandler(keep)
    log.setLevel(logging.INFO)
    yield lines
    log.removeHandler(keep)
    log.setLevel(level)


def test_a_pipe_gets_our_log_lines_and_progress_now_and_then(logged: list[str]) -> None:
    out = io.StringIO()
    screen = PlainScreen(out, 2)
    screen.open()
    screen.log_line("worker-0", LOG_LINE)
    screen.log_line("worker-0", "2026-05-04 tensorflow says something\r")
    screen.log_line("worker-0", '{"ts": 1.0, "event": "x"}')
    screen.log_line("worker-0", '{"ts": broken')
    for second in range(100):
        screen.update(changed(started_at=0.0, now=float(second)))
    screen.say("worker-1 lost: killed by signal 9 (SIGKILL).")
    screen.close(success_block(DONE, ENDING), is_error=False)
    assert out.getvalue().splitlines()[:2] == [f"worker-0 │ {LOG_LINE}", '{"ts": 1.0, "event": "x"}']
    assert out.getvalue().splitlines()[2].startswith("Succeeded  mnist")
    assert not set(out.getvalue()) & set("\r\x1b")
    progress = [line for line in logged if line.startswith("progress=")]
    assert len(progress) == 6  # at 10, 20, … 60 s, then each minute
    assert logged[-1] == "worker-1 lost: killed by signal 9 (SIGKILL)."


def test_errors_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    for screen in (PlainScreen(io.StringIO(), 2), QuietScreen(io.StringIO()), JsonScreen(io.StringIO())):
        screen.close(failure_block(FailureView(text="x"), "a", ENDING), is_error=True)
        assert capsys.readouterr().err.startswith('error: job "a" failed: x\n')


def test_quiet_says_how_it_ended_and_nothing_else() -> None:
    out = io.StringIO()
    screen = QuietScreen(out)
    screen.open()
    screen.log_line("worker-0", WARNING_LINE)
    screen.say("x")
    screen.update(STATUS)
    assert out.getvalue() == ""
    screen.close(success_block(DONE, ENDING), is_error=False)
    assert out.getvalue().startswith("Succeeded")


def test_json_lines_are_objects_and_the_last_one_has_the_digest() -> None:
    out = io.StringIO()
    screen = JsonScreen(out)
    screen.open()
    screen.log_line("worker-0", LOG_LINE)
    for tenth in range(30):
        screen.update(changed(now=100.0 + tenth / 10))
    screen.update(msgspec.structs.replace(DONE, now=103.0))
    screen.close(success_block(DONE, ENDING), is_error=False)
    objects = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(objects) == 4
    assert objects[-1]["job"]["digest"] == DONE.digest


def test_a_terminal_gets_a_block_with_events_and_warnings_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    screen = LiveScreen(out, 2, UNICODE, is_coloured=True)
    screen.open()
    assert "starting …" in out.getvalue()
    screen.log_line("worker-0", LOG_LINE)
    screen.log_line("worker-0", WARNING_LINE)
    event = EventView(seq=1, at=1.0, kind="worker", text="worker-1 lost: killed [by] signal 9.")
    screen.update(changed(events=(event,)))
    screen.update(changed(now=123.0, workers=WORKERS[:1], is_eta_rough=True))
    screen.log_stream().write("from the supervisor\n")
    screen.close(success_block(DONE, ENDING), is_error=False)
    text = out.getvalue()
    assert "Loss = 0.08" not in text
    assert "worker-0: slow\n" in text.replace("\r", "")
    assert "worker-1 lost: killed [by] signal 9." in text
    assert "from the supervisor" in text
    assert "ETA 12s" in text
    assert "ETA ~12s" in text
    assert text.rstrip().endswith("/jobs/mnist/logs")
    assert "\x1b[?25h" in text  # the cursor is there again


def test_what_a_live_view_tells_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    screen = LiveScreen(out, 2, UNICODE, is_coloured=False)
    screen.say(
        "worker-1 lost: killed by signal 9 (SIGKILL). Task 238 goes to another worker: no minibatch is lost, none counts twice."
    )
    assert out.getvalue() == (
        "worker-1 lost: killed by signal 9 (SIGKILL). Task 238 goes to another worker: no\n"
        "  minibatch is lost, none counts twice.\n"
    )


def log_line(level: str, text: str) -> str:
    return f"[2026-05-04 09:12:14,170] [{level}] [service.py:201:push] {text}"


def test_a_live_view_says_once_what_several_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    screen = LiveScreen(out, 2, UNICODE, is_coloured=False)
    screen.open()
    for worker in (0, 1, 0):
        screen.log_line(f"worker-{worker}", log_line("WARNING", "task 5, minibatch 2: ValueError: bad"))
    screen.log_line("master", log_line("WARNING", "task 5 is skipped"))
    told = [("skip", "task 5 is skipped"), ("ps", "ps-0 lost: killed."), ("failed", "it raised 3 times")]
    screen.update(changed(events=[EventView(seq=1, at=1.0, kind=kind, text=text) for kind, text in told]))
    screen.update(changed(events=[EventView(seq=2, at=9.0, kind="ps", text="ps-0 lost: killed.")]))
    screen.log_line("master", log_line("ERROR", 'job "mnist" failed: it raised 3 times'))
    screen.close((), is_error=False)
    text = out.getvalue()
    assert text.count("task 5, minibatch 2: ValueError: bad") == 1
    assert text.count("task 5 is skipped") == 1
    assert text.count("ps-0 lost: killed.") == 2, "it was lost twice"
    assert "it raised" not in text, "that is for the end"


def test_no_rate_is_shown_of_what_is_over() -> None:
    over = changed(state="Evaluating")
    assert "records/s" not in block(over)
    assert "records_per_s" not in progress_line(over, 2)
    for alone in (changed(state="Evaluating", epochs=0), changed(state="Predicting", epochs=0)):
        assert "4,260 records/s" in block(alone)
        assert "records_per_s=4260" in progress_line(alone, 2)

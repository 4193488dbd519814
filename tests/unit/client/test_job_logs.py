"""`edlz logs`: which lines, in which order, across files that grow, turn over and appear."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from edlz.client.arguments.flag_values import seconds_of
from edlz.client.cli import main
from edlz.client.local import job as local_job
from edlz.client.local.job_directory import open_job_directory
from edlz.client.local.launching.log_file import LogFile, LogTrouble
from edlz.client.local.log_files import LogFiles
from edlz.client.screen.log_lines import LogLine, Selection, shown, stamped
from edlz.client.screen.spans import ASCII, UNICODE
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError
from tests import builders
from tests.processes import wait_for


def line(second: int, text: str, msec: int = 0) -> str:
    return f"[2026-05-04 09:12:{second:02d},{msec:03d}] [INFO] [a.py:1:f] {text}"


NOON = time.mktime(time.strptime("2026-05-04 09:12:00", "%Y-%m-%d %H:%M:%S"))


def texts(lines: Sequence[LogLine]) -> list[str]:
    return [one.text.rpartition("] ")[2] for one in lines]


# ---------------------------------------------------------------- lines


def test_times() -> None:
    found = list(
        stamped(
            "ps-0",
            ["junk", line(3, "a", 120), "  File x", '{"ts": 1777885923.5, "event": "b"}', line(1, "back")],
            after=7.0,
        )
    )
    assert [one.at for one in found] == [7.0, NOON + 3.12, NOON + 3.12, 1777885923.5, 1777885923.5]
    assert [one.is_own for one in found] == [False, True, False, True, True]
    assert next(stamped("x", ["[2026-99-99 09:12:00,000] [INFO] x"])).is_own is False


def taken(selection: Selection, *lines: str) -> list[str]:
    return [one.text for one in selection.take(stamped("worker-0", lines))]


def test_selections() -> None:
    lines = (line(1, "Loss = 1"), "junk Loss", line(5, "Loss = 5"), line(6, "other"))
    assert taken(Selection(), *lines) == list(lines)
    assert taken(Selection(since=NOON + 5), *lines) == list(lines[2:])
    assert taken(Selection(grep="Loss"), *lines) == list(lines[:3])
    assert taken(Selection(since=NOON + 2, grep="Loss ="), *lines) == [lines[2]]


@pytest.mark.parametrize(
    "text", ["task 63, minibatch 1: no", "Task:63 completed", "noted task=63", "task 63"]
)
def test_lines_of_a_task_come_with_their_traceback(text: str) -> None:
    lines = (line(1, "task 6"), "  not this", line(2, text), "Traceback", "  File", line(3, "task 631"), "x")
    selection = Selection(task=63)
    assert taken(selection, *lines[:4]) == list(lines[2:4])
    assert taken(selection, *lines[4:]) == [lines[4]]  # the rest of it, read later


def test_sources_are_told_apart() -> None:
    sources: list[str] = []
    one, two = (LogLine(0.0, name, "text", False) for name in ("ps-0", "worker-1"))
    assert shown(one, sources, UNICODE, is_coloured=False) == "ps-0 │ text"
    assert shown(two, sources, ASCII, is_coloured=False) == "worker-1 | text"
    painted = [shown(each, sources, UNICODE, is_coloured=True) for each in (one, two, one)]
    assert painted[0] == painted[2] == "\x1b[36mps-0 │\x1b[0m text"
    assert painted[1] == "\x1b[35mworker-1 │\x1b[0m text"
    as_json = LogLine(0.0, "ps-0", '{"ts": 1, "role": "ps"}', True)
    assert shown(as_json, sources, UNICODE, is_coloured=True) == as_json.text


# ---------------------------------------------------------------- files


def test_files_are_merged_by_time_and_grow(tmp_path: Path) -> None:
    (tmp_path / "master.log").write_text(f"{line(1, 'm1')}\n{line(4, 'm4')}\n{line(6, 'm6')[:20]}")
    (tmp_path / "worker-0.log").write_text(f"{line(2, 'w2')}\ntrace\n{line(5, 'w5')}\n")
    files = LogFiles(tmp_path, lambda name: name != "ps-0", Selection())
    assert texts(list(files.history())) == ["m1", "w2", "trace", "m4", "w5"]
    assert files.news() == []
    with (tmp_path / "master.log").open("a") as log:
        log.write(f"{line(6, 'm6')[20:]}\nno end")
    (tmp_path / "worker-1.log").write_text(f"{line(3, 'x3')}\n")
    (tmp_path / "ps-0.log").write_text("not wanted\n")
    assert texts(files.news()) == ["x3", "m6"]
    assert texts(files.news(is_last=True)) == ["no end"]
    assert files.names() == ["master", "ps-0", "worker-0", "worker-1"]
    files.close()


def test_workers_are_named_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("worker-10", "worker-2", "master", "ps-0"):
        (tmp_path / f"{name}.log").touch()
    assert LogFiles(tmp_path, lambda name: True, Selection()).names() == [
        *("master", "ps-0", "worker-2", "worker-10")
    ]


@pytest.mark.parametrize("most_bytes", [1, 100, 150, 10_000])
def test_no_line_is_lost_or_doubled_when_a_file_turns_over(most_bytes: int, tmp_path: Path) -> None:
    """One turn between two looks: it takes 50 MB."""
    log = LogFile(tmp_path / "worker-0.log", LogTrouble(print), most_bytes=most_bytes, kept=3)
    for number in range(3):
        log.write(f"{line(number, f'old {number}')}\n".encode())
    files = LogFiles(tmp_path, lambda name: True, Selection())
    assert texts(list(files.history())) == ["old 0", "old 1", "old 2"]
    for number in range(3, 10):
        log.write(f"{line(number, f'new {number}')}\n".encode())
        assert texts(files.news()) == [f"new {number}"]
    log.close()
    files.close()


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "master.log").write_bytes(b"\xff\xfe\r\nnext\n")
    files = LogFiles(tmp_path, lambda name: True, Selection())
    assert [one.text for one in files.history()] == ["\ufffd\ufffd", "next"]
    files.close()


# ---------------------------------------------------------------- the command


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobConfig:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return builders.settings(job_name="mnist")


def write_logs(config: JobConfig) -> None:
    with open_job_directory(config) as folder:
        (folder.logs / "master.log").write_text(f"{line(1, 'm1')}\n{line(4, 'task 3 m4')}\n")
        (folder.logs / "worker-0.log").write_text(f"{line(2, 'w2')}\n{line(5, 'w5')}")


@pytest.mark.parametrize(
    ("flags", "shown_lines"),
    [
        ([], ["master m1", "worker-0 w2", "master task 3 m4", "worker-0 w5"]),
        (["--tail=2"], ["master task 3 m4", "worker-0 w5"]),
        (["--tail=0"], []),
        (["--grep=w"], ["worker-0 w2", "worker-0 w5"]),
        (["--task=3"], ["master task 3 m4"]),
        (["--since=1d"], []),
        (["-f", "--master", "--worker=0", "--tail=1"], ["worker-0 w5"]),
    ],
)
def test_what_is_printed(
    flags: list[str], shown_lines: list[str], config: JobConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_logs(config)
    assert main(["logs", "mnist", *flags]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [f"{text.split(' │ ')[0]} {text.rpartition('] ')[2]}" for text in printed] == shown_lines


def test_one_source_has_no_prefix(config: JobConfig, capsys: pytest.CaptureFixture[str]) -> None:
    write_logs(config)
    assert main(["logs", "mnist", "--worker", "0"]) == 0
    assert capsys.readouterr().out == f"{line(2, 'w2')}\n{line(5, 'w5')}\n"


def test_following_takes_new_workers_and_ends_with_the_job(
    config: JobConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_job, "LOG_POLL_S", 0.01)
    is_running, is_followed = threading.Event(), threading.Event()
    looks: list[int] = []
    news = LogFiles.news

    def counted(self: LogFiles, *, is_last: bool = False) -> list[LogLine]:
        looks.append(1)
        is_followed.set()
        return news(self, is_last=is_last)

    monkeypatch.setattr(LogFiles, "news", counted)

    def run() -> None:
        with open_job_directory(config) as folder:
            (folder.path / "journal.sqlite").touch()
            (folder.logs / "worker-0.log").write_text(f"{line(1, 'first')}\n")
            is_running.set()
            assert is_followed.wait(20)
            (folder.logs / "worker-1.log").write_text(f"{line(2, 'second')}\n")
            seen = len(looks)
            wait_for(lambda: len(looks) > seen + 1, "the new file was looked at", 20)
            with (folder.logs / "worker-1.log").open("a") as log:
                log.write("last words")

    job = threading.Thread(target=run)
    job.start()
    assert is_running.wait(20)
    assert main(["logs", "-f", "mnist"]) == 0
    job.join()
    printed = capsys.readouterr()
    assert printed.out == (
        f"worker-0 │ {line(1, 'first')}\nworker-1 │ {line(2, 'second')}\nworker-1 │ last words\n"
    )
    assert printed.err == "mnist stopped: edlz status mnist\n"


def test_ctrl_c_leaves_the_view_only(
    config: JobConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: LogFiles) -> list[LogLine]:
        raise KeyboardInterrupt

    monkeypatch.setattr(LogFiles, "news", interrupt)
    with open_job_directory(config):
        assert main(["logs", "-f", "mnist"]) == 130
    left = "Left the view; mnist goes on. Back: edlz logs -f mnist   Stop: edlz stop mnist"
    assert capsys.readouterr().err.splitlines()[-1] == left


# ---------------------------------------------------------------- durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45", 45), ("45s", 45), ("10m", 600), ("2h", 7200), ("1d", 86400), ("1h 20m", 4800), ("0.5", 0.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of("since", text) == seconds


@pytest.mark.parametrize("text", ["", "x", "10x", "-1", "1 2", "m", "1h2", "1e3", "nan", "1 20m", "\u0661"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a duration"):
        seconds_of("since", text)

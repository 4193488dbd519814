"""The progress of long work: what it says, on a terminal and elsewhere."""

import io
import os
from contextlib import suppress
from pathlib import Path

import pytest

from edlz.client.cli import main
from edlz.client.screen import long_work as module
from edlz.client.screen.long_work import Amount, long_work
from edlz.client.screen.spans import ASCII, plain, width_of
from tests.k8s.any_cluster import wait_for


class Terminal(io.TextIOWrapper):
    """A pipe that passes for a terminal."""

    def isatty(self) -> bool:
        return True


def line(amount: Amount, elapsed_s: float, width: int | None = None) -> str:
    return plain([amount.line(elapsed_s, width, ASCII)]).rstrip("\n")


def test_what_is_said() -> None:
    amount = Amount("verifying", "", 2_000_000_000)
    assert line(amount, 1.0) == "verifying  1s"
    amount.advance(500_000_000)
    assert line(amount, 4.0) == "verifying  25 %  500.0 MB of 2.0 GB"
    assert line(amount, 20.0) == "verifying  25 %  500.0 MB of 2.0 GB  ETA 1m"
    assert line(amount, 4.0, 80) == (
        "verifying  ##########------------------------------  25 %  500.0 MB of 2.0 GB"
    )
    amount.advance(1_500_000_000)
    assert line(amount, 80.0) == "verifying  100 %  2.0 GB of 2.0 GB"


def test_what_nobody_can_count_beforehand() -> None:
    amount = Amount("converting criteo", "record", 0)
    amount.advance(1_234_567)
    assert line(amount, 75.0, 80) == "converting criteo  1,234,567 records  1m 15s"


@pytest.mark.parametrize("width", range(1, 100, 7))
def test_it_fits(width: int) -> None:
    amount = Amount("exporting a-job-with-a-long-name v123,456", "row", 10**9)
    amount.advance(10**8)
    assert width_of(amount.line(100.0, width, ASCII)) <= width


def test_in_a_pipe_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "due_again_s", lambda running_s: 0.01)
    to = io.StringIO()
    with long_work("converting", noun="record", total=10, stream=to) as advance:
        advance(5)
        wait_for(lambda: "50 %" in to.getvalue(), "a line")
    assert set(to.getvalue().splitlines()) <= {"converting  0s", "converting  50 %  5 records of 10 records"}
    assert "\r" not in to.getvalue()


def test_what_is_soon_over_is_not_spoken_of(capsys: pytest.CaptureFixture[str]) -> None:
    with long_work("converting", noun="record", total=10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_it_is_redrawn_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOON_S", 0.0)
    for name, value in {"TERM": "xterm", "TTY_INTERACTIVE": "1", "CI": "", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    leader, follower = os.pipe()
    os.set_blocking(leader, False)
    seen = bytearray()

    def has_drawn() -> bool:
        with suppress(BlockingIOError):
            seen.extend(os.read(leader, 65536))
        return b"50 %" in seen

    with Terminal(open(follower, "wb", buffering=0), encoding="utf-8") as terminal:
        with long_work("verifying", total=10, stream=terminal) as advance:
            advance(5)
            wait_for(has_drawn, "it is drawn")
        wait_for(lambda: has_drawn() and bytes(seen).rstrip().endswith(b"\x1b[2K"), "it is taken away")
    os.close(leader)
    assert "━".encode() in seen


def test_a_command_that_is_asked_for_quiet_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "due_again_s", lambda running_s: 0.0)
    monkeypatch.setenv("EDLZ_PROGRESS", "quiet")
    command = ["zoo", "data", "criteo-generated", "--records=1000"]
    assert main([*command, str(tmp_path / "quiet")]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("EDLZ_PROGRESS")
    assert main([*command, str(tmp_path / "told")]) == 0
    assert "converting criteo-generated  " in capsys.readouterr().err

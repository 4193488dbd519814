"""Long commands that a signal ends: with its exit code and a sentence, and nothing half-done is left."""

import os
import signal
from pathlib import Path

import pytest

from edlz.client.cli import main
from edlz.client.screen.interruption import Interrupted, ended_by_signals
from edlz.client.screen.long_work import Amount

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("target", ["x.recordio", "x.parquet"])
def test_conversion(
    number: signal.Signals,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 100)
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(Amount, "advance", lambda self, more: os.kill(os.getpid(), number))
    code = main(["data", "convert", f"{tmp_path}/a.csv", f"{tmp_path}/out/{target}"])
    said = f"Stopped while converting {tmp_path}/a.csv ({number.name}): nothing unfinished is left.\n"
    assert (code, capsys.readouterr().err) == (128 + number, said)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("number", SIGNALS)
def test_example_data(
    number: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Amount, "advance", lambda self, more: os.kill(os.getpid(), number))
    assert main(["zoo", "data", "criteo-generated", str(tmp_path), "--records=100"]) == 128 + number
    assert f"converting criteo-generated ({number.name})" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_comes_twice_does_not_disturb_the_cleaning_up() -> None:
    cleaned = []

    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), number)
                cleaned.append(number)

    with ended_by_signals(), pytest.raises(Interrupted) as ended:
        work()
    assert len(cleaned) == 2
    assert ended.value.exit_code == 143


def test_what_is_ignored_stays_so_and_handlers_are_put_back() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

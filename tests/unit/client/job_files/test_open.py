"""`edlz open`: where a job's page is."""

from pathlib import Path

import msgspec
import pytest

from edlz.client.cli import main
from edlz.client.local.job_directory import open_job_directory
from edlz.client.screen.live import live_block
from edlz.client.screen.spans import plain
from edlz.services.protocol.job_status import StatusRequest
from edlz.services.protocol.message_types import Message
from tests.unit.client.job_homes import RUNNING, config, ended, master

PAGE = "http://localhost:50002"


def test_of_a_job_that_runs_the_masters_address(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    def paged(body: Message) -> Message:
        assert isinstance(body, StatusRequest)
        return msgspec.structs.replace(RUNNING, page=PAGE)

    with open_job_directory(config()) as folder, master(folder, paged):
        assert main(["open", "--print"]) == 0
    assert capsys.readouterr().out == f"{PAGE}\n"


def test_of_one_that_has_ended_its_report(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    ended(home, msgspec.structs.replace(RUNNING, state="Succeeded"), "mnist")
    assert main(["open", "mnist", "--print"]) != 0
    assert "has left no report.html" in capsys.readouterr().err
    report = home / "jobs" / "mnist" / "report.html"
    report.write_text("<html>")
    assert main(["open", "mnist", "--print"]) == 0
    assert capsys.readouterr().out == f"{report.as_uri()}\n"


def test_of_one_without_a_page_a_refusal(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    with open_job_directory(config()) as folder, master(folder, lambda _: RUNNING):
        assert main(["open", "--print"]) == 2
    assert "has no status page now: --status_port=none" in capsys.readouterr().err


def test_the_live_view_says_where_it_is_if_there_is_room() -> None:
    paged = msgspec.structs.replace(RUNNING, page=PAGE)
    wide = plain(live_block(paged, 80, asked_workers=2)).splitlines()[-1]
    assert wide == f" page {PAGE}       Ctrl-C: stop, can go on later"
    narrow = plain(live_block(paged, 50, asked_workers=2)).splitlines()[-1]
    assert narrow == " Ctrl-C: stop, can go on later"

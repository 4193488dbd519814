"""The report of a job whose master was killed for good: what its journal has, written by whoever notices."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edlz.client.cli import main
from edlz.client.local.job_directory import open_job_directory
from edlz.services.master.core.vocabulary.records import Added
from edlz.services.master.journal.journal import Journal
from edlz.services.master.page.left_report import LOST, leave_report
from edlz.services.master.progress.curves import Curves, Figures
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.job_status import EventView, JobStatus
from edlz.services.protocol.plan import Plan
from tests import builders
from tests.shown_pages import content

BEGAN = 1_777_885_900.0
PLAN = builders.plan(100, records_per_task=10, minibatch_size=5, slots=2, epochs=2)


def journal_in(folder: Path, plan: Plan = PLAN) -> Path:
    """Write what a master has kept of a job that is at version 30 of 40, which it has evaluated once."""
    curves = Curves()
    for version in range(31):
        figures = Figures(
            records=5 * version, version=version, losses=LossSum(total=2.0 * version, count=version)
        )
        curves.note(figures, BEGAN + version)
    kept = curves.to_keep
    assert kept is not None
    given = {"envs": "TOKEN=s3cret", "num_workers": 3, "origins": "envs=;num_workers="}
    config = builders.settings(job_name="mnist", **given).to_record()
    event = EventView(seq=7, at=BEGAN + 3, kind="worker", text="worker-0 lost: killed.")
    with Journal(folder / "journal.sqlite") as journal:
        journal.begin(builders.job(plan, name="mnist", config=config), at=BEGAN)
        journal.write(1, {"term": 1, "events": (event,), "curve_end": kept.end}, {"curves": kept.added})
        journal.write(1, {}, {"evaluations": Added(0, ((20, {"accuracy": 0.75}),))})
    return folder / "journal.sqlite"


def shown(report: Path) -> dict[str, Any]:
    """Return the object that a report shows."""
    page = report.read_text()
    start = page.index(">", page.index('<script type="application/json"')) + 1
    found: dict[str, Any] = json.loads(page[start : page.index("</script>", start)])
    assert found["is_report"]
    return dict(found["status"])


def test_it_shows_what_the_journal_has(tmp_path: Path) -> None:
    assert leave_report(tmp_path, journal_in(tmp_path)) == ""
    tree = shown(tmp_path / "report.html")
    assert tree["job"]["state"] == "Stopped"
    assert (tree["progress"]["ratio"], tree["progress"]["version"]) == (0.75, 30)
    assert tree["progress"]["records_total"] == 200
    assert (len(tree["curves"]["at"]), tree["curves"]["loss"][-1]) == (30, 2.0)
    assert tree["evaluations"] == [{"version": 20, "metrics": {"accuracy": 0.75}}]
    assert [event["text"] for event in tree["events"]] == ["worker-0 lost: killed.", LOST]
    assert tree["events"][-1]["at"] == BEGAN + 30
    assert tree["tasks"]["done_map"] == ""
    assert "--num_workers=3" in tree["configuration"]["command"]
    assert "s3cret" not in (tmp_path / "report.html").read_text()


def test_what_was_heard_last_may_be_more(tmp_path: Path) -> None:
    heard = msgspec.structs.replace(content().status, version=38, records=190, ratio=0.95)
    assert leave_report(tmp_path, journal_in(tmp_path), heard) == ""
    tree = shown(tmp_path / "report.html")
    assert (tree["job"]["state"], tree["progress"]["version"]) == ("Stopped", 38)
    assert (tree["workers"], tree["ps"]) == ([], [])
    assert len(tree["events"]) == len(heard.events) + 2, "and the journal's, and until when that is"
    assert len(tree["evaluations"]) == len(heard.evaluations)


def test_of_a_job_without_an_end_it_shows_what_was_done(tmp_path: Path) -> None:
    journal = journal_in(
        tmp_path, builders.plan(100, records_per_task=10, minibatch_size=5, slots=2, epochs=0)
    )
    assert leave_report(tmp_path, journal) == ""
    progress = shown(tmp_path / "report.html")["progress"]
    assert (progress["version"], progress["records"], progress["records_total"]) == (30, 150, 150)
    heard = msgspec.structs.replace(
        content().status, is_endless=True, version=31, records=155, records_total=200
    )
    (tmp_path / "report.html").unlink()
    assert leave_report(tmp_path, journal, heard) == ""
    progress = shown(tmp_path / "report.html")["progress"]
    assert (progress["version"], progress["records"], progress["records_total"]) == (31, 155, 200)
    assert progress["ratio"] is None


def test_one_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("the master's")
    assert leave_report(tmp_path, journal_in(tmp_path)) == ""
    assert (tmp_path / "report.html").read_text() == "the master's"


def test_without_a_journal_there_is_none(tmp_path: Path) -> None:
    assert "no journal" in leave_report(tmp_path, tmp_path / "journal.sqlite")
    (tmp_path / "journal.sqlite").write_bytes(b"\0garbage" * 500)
    assert "no journal" in leave_report(tmp_path, tmp_path / "journal.sqlite")
    assert list(tmp_path.iterdir()) == [tmp_path / "journal.sqlite"]


# ---------------------------------------------------------------- who notices


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job whose processes were all killed."""
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    with open_job_directory(builders.settings(job_name="mnist")) as folder:
        journal_in(folder.path)
    return folder.path


@pytest.mark.parametrize("command", [["status", "mnist"], ["open", "--print", "mnist"], ["wait", "mnist"]])
def test_a_command_on_a_dead_job_leaves_it(
    command: list[str], dead: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(command)
    assert shown(dead / "report.html")["job"]["state"] == "Stopped"
    if command[0] == "open":
        assert (dead / "report.html").as_uri() in capsys.readouterr().out


def test_a_job_that_ended_but_for_its_report_keeps_its_last_word(dead: Path) -> None:
    done = JobStatus(
        name="mnist", state="Failed", mode="sync", slots=2, started_at=BEGAN, now=BEGAN + 40, version=33
    )
    (dead / "status.json").write_bytes(msgspec.json.encode(done))
    main(["status", "mnist"])
    tree = shown(dead / "report.html")
    assert (tree["job"]["state"], tree["progress"]["version"]) == ("Failed", 33)
    assert [event["text"] for event in tree["events"]] == ["worker-0 lost: killed."]

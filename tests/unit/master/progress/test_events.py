"""What has happened in a job, and when it began, is known to the next master too."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.core.vocabulary.records import Added
from edlz.services.master.journal import full_disk
from edlz.services.master.journal.journal import Journal
from edlz.services.master.progress.events import MOST, Events
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.job_status import EventView, JobStatus, events_before
from tests.builders import settings_in


def life(config: JobConfig, *announced: str) -> JobStatus:
    """Let a master say so much, and kill it when the journal has it; return what it said first of all."""
    seen: list[JobStatus] = []

    async def attend(service: MasterService) -> None:
        seen.append(service.status())
        for text in announced:
            service.announce("worker", text)
        while announced and announced[-1] not in journalled(config):  # noqa: ASYNC110  a file's content
            await asyncio.sleep(0.01)
        killed.cancel()

    async def serve() -> None:
        await serve_master(config, Stop(), attend)

    async def both() -> None:
        nonlocal killed
        killed = asyncio.create_task(serve(), name="master")
        async with asyncio.timeout(60):
            await asyncio.gather(killed, return_exceptions=True)

    killed: asyncio.Task[None]
    asyncio.run(both())
    return seen[0]


def journalled(config: JobConfig) -> list[str]:
    with Journal(config.job_directory / "journal.sqlite") as journal:
        return [event.text for event in journal.state().events]


def test_the_next_master_knows_what_has_happened_and_when_the_job_began(tmp_path: Path) -> None:
    config = settings_in(tmp_path)
    first = life(config, "worker-1 lost: killed.", "worker-2 starts in its place.")
    second = life(config, "worker-2 training after 4.8s.")
    third = life(config)
    assert [event.text for event in third.events] == [
        "worker-1 lost: killed.",
        "worker-2 starts in its place.",
        "worker-2 training after 4.8s.",
    ]
    assert first.started_at == second.started_at == third.started_at
    assert [event.seq > events_before(2) for event in third.events] == [False, False, True]


def test_another_run_has_none_of_them(tmp_path: Path) -> None:
    life(settings_in(tmp_path), "worker-1 lost: killed.")
    other = life(settings_in(tmp_path, num_epochs=3))
    assert other.events == ()


def test_a_disk_that_is_full_costs_no_more_than_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, written = settings_in(tmp_path), Journal.write
    tried: list[float | None] = []

    def write(
        self: Journal,
        term: int,
        fields: dict[str, object],
        added: dict[str, Added] | None = None,
        *,
        patience_s: float | None = None,
    ) -> None:
        if set(fields) == {"events"}:
            tried.append(patience_s)
            raise full_disk.DiskFull("no room")
        written(self, term, fields, added, patience_s=patience_s)

    monkeypatch.setattr(Journal, "write", write)

    async def attend(service: MasterService) -> None:
        service.announce("worker", "worker-1 lost: killed.")
        while not tried:  # noqa: ASYNC110  the master's own doing
            await asyncio.sleep(0.01)
        assert service.status().events[-1].text == "worker-1 lost: killed."
        stop.set(0, "the test is over")

    stop = Stop()
    assert asyncio.run(serve_master(config, stop, attend)) == 0
    assert set(tried) == {0}, "and once more at the end"


def test_a_journal_of_an_earlier_version_has_neither(tmp_path: Path) -> None:
    config = settings_in(tmp_path)
    life(config, "worker-1 lost: killed.")
    with sqlite3.connect(config.job_directory / "journal.sqlite") as database:
        database.execute("DELETE FROM facts WHERE name IN ('events', 'began')")
    database.close()
    status = life(config)
    assert status.events == ()
    assert status.now - status.started_at < 60


def test_events_are_numbered_and_the_oldest_go_first() -> None:
    events = Events(3, [EventView(seq=5, at=1.0, kind="job", text="earlier")])
    assert events.to_keep is None
    for number in range(MOST + 10):
        events.add("worker", str(number), 2.0)
    assert [event.text for event in events.since(0)][:2] == ["10", "11"]
    assert len(events.since(events_before(3))) == MOST
    kept = events.due(0.0)
    assert kept is not None
    events.on_kept(kept, 0.0)
    assert events.due(100.0) is None
    events.add("worker", "one more", 3.0)
    assert events.due(0.5) is None, "not each of many by itself"
    assert events.due(1.0) is not None

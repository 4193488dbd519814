"""A job that is complete stays so, whoever is killed then: its master needs nobody and trains nothing again."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from edlz.client.local.verdict import written_status
from edlz.services.configuration.job_config import JobConfig
from edlz.services.master import written_records
from edlz.services.master.core.vocabulary.inputs import Request
from edlz.services.master.journal.full_disk import DiskFull
from edlz.services.master.journal.journal import Journal
from edlz.services.master.planning import open_journal
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.messages import SupervisorStatus
from edlz.services.transport.rpc import ReplyTo
from tests.builders import settings_in
from tests.complete_jobs import FINAL, completed
from tests.statuses import partition_status


def run_after(config: JobConfig) -> str:
    journal, job = open_journal(config, config.job_directory)
    journal.close()
    return job.run


@pytest.mark.parametrize("launch", ["", "one"])
def test_a_master_that_is_started_again_goes_on_with_the_run(tmp_path: Path, launch: str) -> None:
    config = settings_in(tmp_path, launch_id=launch)
    job = completed(config)
    assert run_after(config) == job.run


def test_another_start_is_another_run(tmp_path: Path) -> None:
    first = completed(settings_in(tmp_path, launch_id="one"))
    assert run_after(settings_in(tmp_path, launch_id="two")) != first.run
    assert (tmp_path / "job" / f"journal-{first.run}.sqlite").exists()


def test_by_hand_a_job_that_has_ended_is_begun_again(tmp_path: Path) -> None:
    config = settings_in(tmp_path)
    job = completed(config, has_ended=True)
    assert run_after(config) != job.run


def test_a_complete_job_is_resumed_as_it_is(tmp_path: Path) -> None:
    job = completed(settings_in(tmp_path, launch_id="one"))
    resumed = settings_in(tmp_path, launch_id="two", resume=True, num_workers=5)
    journal, found = open_journal(resumed, resumed.job_directory)
    with journal:
        assert found == job == journal.job()


def test_its_master_ends_alone_and_says_how_the_job_ended(tmp_path: Path) -> None:
    config = settings_in(tmp_path, launch_id="one")
    completed(config)
    assert written_status(config.job_directory) == FINAL, "before that the journal says it"
    seen: list[JobStatus] = []

    async def attend(service: MasterService) -> None:
        orders = service.supervise(SupervisorStatus(seq=1))
        assert (orders.stop, orders.desired) == (True, ())
        seen.append(service.status())

    assert asyncio.run(serve_master(config, Stop(), attend)) == 0
    assert seen == [FINAL]
    assert named_status.decode((config.job_directory / "status.json").read_bytes()) == FINAL


@pytest.mark.parametrize("launch", ["", "one"])
def test_that_it_has_ended_is_noted_only_where_no_launch_tells_the_next_run(
    tmp_path: Path, launch: str
) -> None:
    config = settings_in(tmp_path, launch_id=launch)
    completed(config)

    async def attend(service: MasterService) -> None:
        service.supervise(SupervisorStatus(seq=1))

    assert asyncio.run(serve_master(config, Stop(), attend)) == 0
    with Journal(config.job_directory / "journal.sqlite") as journal:
        assert journal.state().has_ended is not bool(launch)


@pytest.mark.parametrize("trouble", ["younger", "read-only", "full"])
def test_a_complete_job_is_complete_whatever_its_journal_says_at_the_end(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(written_records, "PATIENCE_S", 0.0)
    config = settings_in(tmp_path)
    completed(config)

    async def attend(service: MasterService) -> None:
        service.supervise(SupervisorStatus(seq=1))
        if trouble == "younger":
            with Journal(config.job_directory / "journal.sqlite") as younger:
                younger.write(9, {"term": 9})
        elif trouble == "read-only":
            service._journal._database.execute("PRAGMA query_only=ON")
        else:
            fill_up(service._journal, service._core.term)

    assert asyncio.run(serve_master(config, Stop(), attend)) == 0
    assert "that the job has ended could not be noted" in caplog.text


def fill_up(journal: Journal, term: int) -> None:
    """Let SQLite's own limit stand for a disk on which the smallest fact has no room."""
    (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
    journal._database.execute(f"PRAGMA max_page_count={pages}")
    for what in ("x" * 10, "x"):  # the last one is smaller than any fact of a job
        with contextlib.suppress(DiskFull):
            for number in range(1000):
                journal.write(term, {f"{number}": what}, patience_s=0.0)


def test_a_master_whose_time_is_over_ends_and_says_nothing(tmp_path: Path) -> None:
    """Also if it hears of that from a process that has joined the younger one."""
    config = settings_in(tmp_path, launch_id="one")
    config.job_directory.mkdir()

    async def attend(service: MasterService) -> None:
        with Journal(config.job_directory / "journal.sqlite") as younger:
            younger.write(2, {"term": 2})
        claim = partition_status(term=2, run=service._core.job.run)
        service.feed(Request(ReplyTo(b"nobody", 1), claim))
        await asyncio.Event().wait()

    assert asyncio.run(serve_master(config, Stop(), attend)) == 1
    assert not (config.job_directory / "status.json").exists()


def test_who_still_runs_is_waited_for_until_it_has_heard(tmp_path: Path) -> None:
    config = settings_in(tmp_path, launch_id="one")
    completed(config)

    async def attend(service: MasterService) -> None:
        orders = service.supervise(SupervisorStatus(seq=1, running=("ps-0", "worker-0")))
        assert not orders.stop
        assert orders.desired == ("ps-0", "worker-0"), "nobody is ended before, and nobody is started"
        orders = service.supervise(SupervisorStatus(seq=2, running=()))
        assert orders.stop

    assert asyncio.run(serve_master(config, Stop(), attend)) == 0


def test_a_status_tells_the_threads_that_the_bits_depend_on(tmp_path: Path) -> None:
    seen, stop = [], Stop()

    async def attend(service: MasterService) -> None:
        seen.append(service.status().threads)
        stop.set(143, "seen enough")

    asyncio.run(serve_master(settings_in(tmp_path, worker_threads=3), stop, attend))
    assert seen == [3]

"""What the master does while its disk is full: nothing but waiting, and nothing is lost or spoken of too early."""

import errno
import logging
import sqlite3
from pathlib import Path

import pytest

from edlz.services.master.journal import full_disk
from edlz.services.master.journal.full_disk import DiskFull, FullDisk
from edlz.services.master.journal.journal import Journal
from tests import builders
from tests.small_disk import fill, small_disk

PLAN = builders.plan(9, records_per_task=2)
JOB = builders.job(PLAN, partitions=2)
FULL = OSError(errno.ENOSPC, "No space left on device")


class Work:
    """Raises these one after the other, then is done."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, in no time."""
    made: list[float] = []
    monkeypatch.setattr(full_disk.time, "sleep", made.append)
    return made


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk")
    error.sqlite_errorcode = code
    return error


def test_it_waits_with_longer_and_longer_pauses(
    tmp_path: Path, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk(tmp_path / "journal.sqlite")
    assert disk.wait_for(Work(*[FULL] * 7)) == "done"
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    told = [record.getMessage() for record in caplog.records]
    why = "[Errno 28] No space left on device"
    assert told == [
        f"no room on the disk for {tmp_path}/journal.sqlite ({why}): the job waits until there is",
        f"there is room again for {tmp_path}/journal.sqlite",
    ]
    assert disk.waited_s > 0


def test_a_disk_that_stays_full_ends_the_job(tmp_path: Path) -> None:
    disk = FullDisk(tmp_path / "journal.sqlite", limit_s=0.0)
    with pytest.raises(DiskFull, match=rf"no room on the disk for {tmp_path}/journal.sqlite within 0s"):
        disk.wait_for(Work(*[FULL] * 100))


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_FULL | (1 << 8)])
def test_sqlite_says_that_it_is_full(code: int, tmp_path: Path) -> None:
    assert FullDisk(tmp_path / "j").wait_for(Work(*[sqlite_error(code)] * 3)) == "done"


@pytest.mark.parametrize(
    "error",
    [
        sqlite_error(sqlite3.SQLITE_IOERR_FSYNC),
        sqlite_error(sqlite3.SQLITE_BUSY),
        OSError(errno.EIO, "bad disk"),
        OSError(errno.EACCES, "not allowed"),
    ],
)
def test_another_error_is_tried_once_more_and_raised(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There may be room since the moment of the error, which cannot be told afterwards."""
    disk = FullDisk(tmp_path / "journal.sqlite")
    assert disk.wait_for(Work(error)) == "done"
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/journal.sqlite could not be written ({error}), tried once more"
    ]
    assert disk.waited_s == 0.0, "that is no full disk"
    with pytest.raises(type(error)):
        disk.wait_for(Work(error, error))
    assert list(tmp_path.iterdir()) == []


def test_a_transaction_that_does_not_fit_is_written_later_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of SQLite's own stands for the disk's: it fails in the middle of the transaction."""
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal, Journal(path) as reader:
        journal.begin(JOB)
        journal.write(1, {"term": 1})
        database = journal._database
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count={pages}")
        seen: list[int] = []

        def make_room(_: float) -> None:
            seen.append(len(reader.state().evaluations))
            if len(seen) == 3:
                database.execute(f"PRAGMA max_page_count={100 * pages}")

        monkeypatch.setattr(full_disk.time, "sleep", make_room)
        evaluations = tuple((version, {"accuracy": 0.5}) for version in range(1000))
        journal.write(1, {"saved": 7, "evaluations": evaluations})
        assert seen == [0, 0, 0]
        assert journal.waited_s > 0
        assert len(reader.state().evaluations) == 1000
        assert reader.state().saved == 7


@pytest.mark.parametrize("begun", [True, False])
def test_a_journal_on_a_disk_that_is_full(
    *, begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a real disk: a new one, and one of which the first page of a log is still to be written."""
    caplog.set_level(logging.WARNING)
    with small_disk(tmp_path / "disk", 1024) as disk:
        path = disk / "journal.sqlite"
        if begun:
            with Journal(path) as journal:
                journal.begin(JOB)
        room = fill(disk)
        room.__enter__()
        waits = 0

        def make_room(_: float) -> None:
            nonlocal waits
            waits += 1
            if waits == 3:
                room.__exit__(None, None, None)

        monkeypatch.setattr(full_disk.time, "sleep", make_room)
        with Journal(path) as journal:
            if not begun:
                journal.begin(JOB)
            journal.write(1, {"term": 1})
            assert waits == 3
        with Journal(path) as journal:
            assert (journal.job(), journal.state().term) == (JOB, 1)
    assert "no room on the disk" in caplog.text


def test_nothing_is_waited_for_on_a_disk_with_room(tmp_path: Path, pauses: list[float]) -> None:
    disk = FullDisk(tmp_path / "journal.sqlite")
    assert disk.wait_for(Work()) == "done"
    assert (disk.waited_s, pauses) == (0.0, [])

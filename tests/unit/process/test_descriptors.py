"""What a process does when it has no descriptor left."""

import errno
import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edlz.services.master.journal.journal import Journal
from edlz.services.process import descriptors
from edlz.services.process.descriptors import SPARE, descriptor_limit, raise_descriptor_limit, spared
from edlz.services.storage.checkpoint_records import version_folder
from edlz.services.storage.durable import fsync_path, write_file
from edlz.services.storage.pruning import prune
from edlz.services.storage.snapshots import SnapshotFolder
from edlz.services.storage.versions import list_versions, newest_good
from tests import builders
from tests.states import assert_same_state, make_state, save

PLAN = builders.plan()
JOB = builders.job(PLAN)


@pytest.fixture(autouse=True)
def _own_reserve(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A reserve and a limit of the test's own."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = descriptors._Reserve()
    monkeypatch.setattr(descriptors, "_reserve", reserve)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for descriptor in reserve._held:
        os.close(descriptor)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        assert error.errno == errno.EMFILE  # noqa: PT017
    try:
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)


def lower_limit() -> None:
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (highest + 3 * SPARE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )


def test_the_limit_is_raised_to_what_the_system_allows() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    lower_limit()
    assert raise_descriptor_limit() == descriptor_limit() == min(hard, descriptors.MOST)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard


def test_files_are_written_with_what_was_kept_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    descriptors._reserve.fill()
    lower_limit()
    with no_descriptor_left():
        with pytest.raises(OSError):
            (tmp_path / "b").write_bytes(b"2")
        write_file(tmp_path / "a", b"1")
        fsync_path(tmp_path)
        spared((tmp_path / "b").write_bytes)(b"2")
        assert len(descriptors._reserve._held) == SPARE
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / "b").read_bytes() == b"2"
    assert caplog.record_tuples[0][1] == logging.WARNING
    assert "no file descriptor left" in caplog.text


def test_a_journal_needs_none_to_write(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db") as journal:
        journal.write(1, {"term": 1})
        lower_limit()
        with no_descriptor_left():
            journal.write(1, {"saved": 5})
            assert journal.state().saved == 5


def test_snapshots_are_listed_and_written_with_what_was_kept_back(tmp_path: Path) -> None:
    folder = SnapshotFolder(0, tmp_path)
    folder.open(JOB)
    state = make_state()
    descriptors._reserve.fill()
    lower_limit()
    with no_descriptor_left():
        assert folder.names() == ()
        folder.write(state, (1, 1))
        assert folder.names() == (state.name,)
        loaded = folder.load(state.name)
    assert_same_state(state, loaded)
    loaded.close()


def test_checkpoints_are_written_found_and_pruned_with_what_was_kept_back(tmp_path: Path) -> None:
    save(tmp_path, 6)  # imports what it needs
    descriptors._reserve.fill()
    lower_limit()
    with no_descriptor_left():
        for version in (7, 8, 9):
            save(tmp_path, version)
        assert [info.version for info in list_versions(tmp_path)] == [9, 8, 7, 6]
        prune(tmp_path, keep=1)
        assert [info.version for info in list_versions(tmp_path)] == [9]
        assert newest_good(tmp_path) == version_folder(tmp_path, 9)


def test_other_errors_are_raised_at_once(tmp_path: Path) -> None:
    calls = []

    @spared
    def fail() -> None:
        calls.append(1)
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert calls == [1]


def test_without_any_place_left_the_error_is_raised(tmp_path: Path) -> None:
    lower_limit()
    with no_descriptor_left(), pytest.raises(OSError) as caught:
        write_file(tmp_path / "a", b"1")
    assert caught.value.errno == errno.EMFILE

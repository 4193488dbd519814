"""A service's log file where the disk does not take everything."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edlz.client.local.launching.log_file import LogFile, LogTrouble


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """A limit of this process stands for a disk that is full for a while."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_lines_that_do_not_fit_are_dropped_counted_and_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    trouble = LogTrouble(said.append)
    one, other = LogFile(tmp_path / "one.log", trouble), LogFile(tmp_path / "other.log", trouble)
    one.write(b"first\n")
    with largest_file(8):
        one.write(b"second\nthird\n")  # two bytes of it fit
        one.write(b"fourth\n")
        other.write(b"too long for it\n")
    other.close()
    assert said == [
        f"{tmp_path}/one.log cannot be written: File too large; log lines are dropped until that is over."
    ]
    one.write(b"fifth\n")
    one.write(b"sixth\n")
    one.close()
    assert said[1:] == ["log files are written again; 4 lines could not be kept."]
    assert (tmp_path / "one.log").read_text() == (
        "first\nse\n--- 3 lines could not be written here\nfifth\nsixth\n"
    )


def test_a_log_file_that_cannot_be_made_is_made_later(tmp_path: Path) -> None:
    said: list[str] = []
    log = LogFile(tmp_path / "logs" / "w.log", LogTrouble(said.append))
    log.write(b"one\n")
    (tmp_path / "logs").mkdir()
    log.write(b"two\n")
    log.close()
    assert (tmp_path / "logs" / "w.log").read_text() == "--- 1 line could not be written here\ntwo\n"
    assert len(said) == 2

"""Small files that are there whole or not at all."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edlz.services.storage.durable import replace_file


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """A limit of this process stands for a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    place = tmp_path / "job.yaml"
    replace_file(place, "one: 1\n")
    replace_file(place, b"two: \xc3\xbc\n")
    assert place.read_text(encoding="utf-8") == "two: ü\n"
    assert list(tmp_path.iterdir()) == [place]


def test_what_does_not_fit_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "job.yaml"
    replace_file(place, "one: 1\n")
    with largest_file(10), pytest.raises(OSError, match="File too large") as raised:
        replace_file(place, "x" * 100)
    assert raised.value.filename == str(place)
    assert place.read_text() == "one: 1\n"
    assert list(tmp_path.iterdir()) == [place]

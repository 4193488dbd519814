"""A master that fails in the middle of a job: its pod says why, however long the traceback is."""

import asyncio
from pathlib import Path

import pytest

from edlz.k8s.container_end import last_word, with_last_word
from edlz.services.master.journal.full_disk import DiskFull
from edlz.services.supervision.post_mortem import last_words


async def in_the_middle(error: Exception) -> int:
    """Raise as a service does whose task has failed: in a group, in another one."""
    async with asyncio.TaskGroup() as tasks:

        async def fail() -> None:
            async with asyncio.TaskGroup():
                raise error

        tasks.create_task(fail())
    return 0


def said(error: Exception, place: Path) -> str:
    place.write_text("of a life before, and longer than what follows it, however long that may be" * 9)
    with pytest.raises(ExceptionGroup):
        asyncio.run(with_last_word(in_the_middle(error), place))
    return place.read_text()


def test_an_error_of_ours_is_the_last_word_with_its_help(tmp_path: Path) -> None:
    text = said(DiskFull("journal.sqlite cannot be written", "make room"), tmp_path / "word")
    assert last_words(text.splitlines()) == ("journal.sqlite cannot be written", "", "make room")


def test_a_bug_is_told_in_a_line(tmp_path: Path) -> None:
    words = last_words(said(KeyError("x"), tmp_path / "word").splitlines())
    assert words.error.startswith("edlz itself failed: KeyError: 'x' (test_last_word.py:")
    assert "report" in words.help
    assert last_word(KeyError()) == (
        "error: edlz itself failed: KeyError\nhelp: please report this, with the log of the pod\n"
    )


def test_outside_of_a_container_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup):
        asyncio.run(with_last_word(in_the_middle(KeyError("x")), tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_what_ends_well_says_nothing(tmp_path: Path) -> None:
    async def well() -> int:
        return 7

    assert asyncio.run(with_last_word(well(), tmp_path / "none")) == 7

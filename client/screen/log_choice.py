"""Which lines of a job's logs are printed, and how: what `edlz logs` was asked for."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from edlz.client.screen.log_lines import LogLine, Selection, shown
from edlz.client.screen.terminal import glyphs_for, has_colour
from edlz.services.errors import EdlzError

__all__ = ["LogChoice", "LogOutput", "NoSuchService", "refuse_missing"]


class NoSuchService(EdlzError):
    """The job has no log of that worker or parameter server."""

    code = "no-such-service"
    exit_code = 4


@dataclass(frozen=True, slots=True)
class LogChoice:
    """What is wanted.

    Attributes
    ----------
    sources : sequence of str
        Names of services; all of them if empty.
    selection : Selection
        Which of their lines.
    tail : int, optional
        How many of the lines that are there; all if None.
    is_following : bool
        Whether to wait for further ones, until the job ends.
    """

    sources: Sequence[str]
    selection: Selection
    tail: int | None = None
    is_following: bool = False

    def takes(self, source: str) -> bool:
        """Whether a service is wanted."""
        return not self.sources or source in self.sources

    def by_clock(self, ahead_s: float) -> "LogChoice":
        """Return the same, for lines whose times are of a clock that is so much ahead."""
        selection = replace(self.selection, since=self.selection.since + ahead_s)
        return replace(self, selection=selection) if self.selection.since else self


class LogOutput:
    """Lines on standard output, under their sources' names where there may be several."""

    def __init__(self, *, is_single: bool) -> None:
        self._is_single = is_single
        self._sources: list[str] = []
        self._is_coloured, self._glyphs = has_colour(sys.stdout, os.environ), glyphs_for(sys.stdout)

    def write(self, lines: Iterable[LogLine]) -> None:
        """Print them."""
        for line in lines:
            text = line.text
            if not self._is_single:
                text = shown(line, self._sources, self._glyphs, is_coloured=self._is_coloured)
            sys.stdout.write(text + "\n")
        sys.stdout.flush()


def refuse_missing(word: str, sources: Sequence[str], names: Sequence[str]) -> None:
    """Raise NoSuchService unless a job has logs of these services."""
    missing = [source for source in sources if source not in names]
    if missing or not names:
        there = f"there are: {', '.join(names)}" if names else f"edlz status {word}"
        raise NoSuchService(f'job "{word}" has no log of {missing[0] if missing else "any service"}', there)

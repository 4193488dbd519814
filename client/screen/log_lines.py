"""Lines of log files: when each was written, which of them are wanted, how they are shown.

Pure.  A line without a time (of a traceback, or what a library printed) belongs to the one above it.
"""

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from edlz.client.screen.spans import Glyphs

__all__ = ["LogLine", "Selection", "shown", "stamped"]

_TEXT_TIME = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\] \[")
_JSON_TIME = re.compile(r'\{"ts": ?(\d+(?:\.\d+)?)')
_SOURCE_COLOURS = ("36", "35", "34", "33", "32")  # SGR: cyan, magenta, blue, yellow, green; red is for errors


class LogLine(NamedTuple):
    """A line of a service.

    Attributes
    ----------
    at : float
        Seconds since the epoch; never less than that of the line before.
    source : str
        The service's name.
    text : str
        Without its end.
    is_own : bool
        Whether it carries its time itself.
    """

    at: float
    source: str
    text: str
    is_own: bool


@dataclass(slots=True)
class Selection:
    """Which lines are wanted; it is told of all of them, in the order of each source.

    Attributes
    ----------
    since : float
        Seconds since the epoch.
    grep : str
        Text that a line holds.
    task : int, optional
        Number of a task that a line, or the one that it belongs to, speaks of.
    """

    since: float = 0.0
    grep: str = ""
    task: int | None = None
    # By source: whether the last line, or the one that it belongs to, speaks of the task.
    _speaking: dict[str, bool] = field(default_factory=dict)

    def take(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """Yield the lines that are wanted."""
        of_task = None if self.task is None else re.compile(rf"\btask[ =:]{self.task}\b", re.IGNORECASE)
        for line in lines:
            if of_task is not None:
                is_above = self._speaking.get(line.source, False) and not line.is_own
                self._speaking[line.source] = is_above or of_task.search(line.text) is not None
                if not self._speaking[line.source]:
                    continue
            if line.at >= self.since and self.grep in line.text:
                yield line


def stamped(source: str, texts: Iterable[str], after: float = 0.0) -> Iterator[LogLine]:
    """Yield lines with their times; `after` is the time of the line before the first."""
    at = after
    for text in texts:
        own = _time_of(text)
        at = at if own is None else max(at, own)
        yield LogLine(at, source, text, own is not None)


def shown(line: LogLine, sources: list[str], glyphs: Glyphs, *, is_coloured: bool) -> str:
    """Return a line as it is printed: under its source's name where there are several.

    `sources` : the names that were shown so far, in their order; a new one is added
    """
    if line.source not in sources:
        sources.append(line.source)
    if line.text.startswith('{"ts"'):  # which says itself where it is from
        return line.text
    prefix = f"{line.source} {glyphs.bar}"
    if is_coloured:
        colour = _SOURCE_COLOURS[sources.index(line.source) % len(_SOURCE_COLOURS)]
        prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
    return f"{prefix} {line.text}"


def _time_of(text: str) -> float | None:
    found = _TEXT_TIME.match(text)
    if found:
        whole = _seconds_of(found[1])
        return None if whole is None else whole + int(found[2]) / 1000
    as_json = _JSON_TIME.match(text)
    return float(as_json[1]) if as_json else None


@lru_cache(maxsize=64)
def _seconds_of(text: str) -> float | None:
    """Return seconds since the epoch of a local time, as `logging` writes it."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return None

"""What a process said last: the reason of its end, read from the last lines of its log."""

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["LastWords", "last_words"]

_FRAME = re.compile(r'\s*File "(?P<path>.+)", line (?P<line>\d+), in (?P<function>\S+)')
_RAISED = re.compile(r"\s*([A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning|Group)\b.*)")
_LIBRARIES = ("/site-packages/", "/lib/python", "<frozen", "__autograph_generated")


class LastWords(NamedTuple):
    """The reason of an end, as far as it was said.

    Attributes
    ----------
    error : the message
    where : `file:line in function` of the innermost frame that is no library's
    help : what to do
    """

    error: str = ""
    where: str = ""
    help: str = ""


def last_words(tail: Sequence[str]) -> LastWords:
    """Return what the last lines of a log say: an `error:` line of ours, an exception, or the last line."""
    for place, line in enumerate(tail):
        if line.startswith("error: "):
            following = tail[place + 1] if place + 1 < len(tail) else ""
            is_help = following.startswith("help: ")
            return LastWords(line.removeprefix("error: "), "", following[len("help: ") :] if is_help else "")
    began = max((i for i, line in enumerate(tail) if line.startswith("Traceback (")), default=None)
    if began is None:
        said = [line for line in tail if line.strip() and not line.startswith("--- ended")]
        return LastWords(said[-1].strip() if said else "")
    error = where = ""
    for line in tail[began:]:
        frame = _FRAME.match(line)
        if frame and not any(part in frame["path"] for part in _LIBRARIES):
            where = f"{frame['path']}:{frame['line']} in {frame['function']}"
        raised = _RAISED.match(line)
        error = raised[1].strip() if raised and not frame else error
    return LastWords(error, where)

"""Why a process has ended: by its exit code or signal and what its launcher knows, and by what it said last.

Three things tell the reason in the last lines of its log: an `error:` line of ours, a traceback of Python, a crash that
`faulthandler` wrote down.  Without any of them it is the last line that is a warning at least, or no log line at all; what
went well is no reason.
"""

import json
import re
import signal
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from edlz.services.error_text import is_library, main_line

if TYPE_CHECKING:  # else whoever looks at a log would import NumPy with all messages
    from edlz.services.protocol.messages import ProcessExit

__all__ = ["Cause", "LastWords", "cause_of", "last_words"]

_FRAME = re.compile(r'\s*File "(?P<path>.+)", line (?P<line>\d+),? in (?P<function>.+)')
_TRACEBACK = re.compile(r"(?:[A-Za-z ]+ )?Traceback \(most recent call last\):")
_GROUP = re.compile(r"\s*(?:\||\+-[+-]*|\+(?= )) ?")  # what stands before the lines of an exception group
_CRASH = "Fatal Python error: "
_STACK = "Current thread "
_LOG_LINE = re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+\] \[(?P<level>[A-Z]+)\] \[[^\]]+\] (?P<text>.*)")
_GLOG_LINE = re.compile(r"(?P<level>[IWEF])\d{4} |(?P<early>WARNING: All log messages before absl)")
_FAILED_CHECK = re.compile(r"F\d{4} [^\]]*\] (?P<text>.+)")  # of C++ code, which then ends the process
_WELL, _ERRORS = frozenset(("DEBUG", "INFO")), frozenset(("ERROR", "CRITICAL"))


class LastWords(NamedTuple):
    """The reason of an end, as far as it was said.

    Attributes
    ----------
    error : str
        The message.
    where : str
        `file:line in function` of the innermost frame that is no library's.
    help : str
        What to do.
    """

    error: str = ""
    where: str = ""
    help: str = ""


def last_words(tail: Sequence[str]) -> LastWords:
    """Return what the last lines of a log say of the end of its process."""
    for place, line in enumerate(tail):
        if line.startswith("error: "):
            following = tail[place + 1] if place + 1 < len(tail) else ""
            is_help = following.startswith("help: ")
            return LastWords(line.removeprefix("error: "), "", following[len("help: ") :] if is_help else "")
    crash = next((place for place, line in enumerate(tail) if line.startswith(_CRASH)), None)
    if crash is not None:
        checks = [check["text"] for check in map(_FAILED_CHECK.match, tail[:crash]) if check is not None]
        error = ": ".join([tail[crash].removeprefix(_CRASH), *checks[-1:]])
        return LastWords(error, _frame_of_crash(tail[crash:]))
    lines = [_GROUP.sub("", line, count=1) for line in tail]
    began = [place for place, line in enumerate(lines) if _TRACEBACK.match(line)]
    if began:
        return _raised(lines, began)
    told, is_error = "", False
    for line in tail:
        logged = _LOG_LINE.match(line)
        if logged or not is_error:  # what follows an error without a head of its own belongs to it
            told = _told(line) or told
        is_error = is_error if logged is None else logged["level"] in _ERRORS
    return LastWords(told)


def _raised(lines: Sequence[str], began: Sequence[int]) -> LastWords:
    """Read tracebacks that follow one another: the last one is of the error that ended the process."""
    ends = [*began[1:], len(lines)]
    blocks = [lines[start + 1 : end] for start, end in zip(began, ends, strict=True)]
    frames = (_users_frame(block) for block in reversed(blocks))
    return LastWords(_message(blocks[-1]), next(filter(None, frames), ""))


def _message(block: Sequence[str]) -> str:
    """Return what a traceback ends with: the first line that is not indented, and those that belong to it."""
    start = next((place for place, line in enumerate(block) if line[:1].strip()), None)
    if start is None:
        return ""
    text = [block[start]]
    for line in block[start + 1 :]:
        if _LOG_LINE.match(line) or line.startswith(("--- ended", "The above exception", "During handling")):
            break
        text.append(line)
    return main_line("\n".join(text))


def _users_frame(block: Sequence[str]) -> str:
    where = ""
    for frame in filter(None, map(_FRAME.match, block)):
        if not is_library(frame["path"]):
            where = f"{frame['path']}:{frame['line']} in {frame['function']}"
    return where


def _frame_of_crash(lines: Sequence[str]) -> str:
    """Return the user's innermost frame of the thread that crashed; its stack begins with the innermost one."""
    start = next((place for place, line in enumerate(lines) if line.startswith(_STACK)), len(lines))
    for line in lines[start + 1 :]:
        frame = _FRAME.match(line)
        if frame is None and not line.startswith("  "):
            break
        if frame is not None and not is_library(frame["path"]):
            return f"{frame['path']}:{frame['line']} in {frame['function']}"
    return ""


def _told(line: str) -> str:
    """Return what a line outside of tracebacks says of an end; nothing if it is of what goes well."""
    if not line.strip() or line.startswith("--- ended"):
        return ""
    if logged := _LOG_LINE.match(line):
        return "" if logged["level"] in _WELL else logged["text"]
    if glog := _GLOG_LINE.match(line):
        return line.strip() if glog["level"] in ("E", "F") else ""
    if line.startswith('{"ts"'):
        try:
            event = json.loads(line)
            return "" if event.get("level") in _WELL else str(event.get("event", ""))
        except (ValueError, RecursionError):
            return ""
    return line.strip()


_CODE_OF_SIGNAL = 128  # a shell, or a container, tells a signal as this much more
_CRASHES = frozenset(
    (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS)
)


class Cause(Enum):
    """Why a process has ended."""

    SUCCEEDED = "succeeded"
    KILLED = "killed"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out of memory"
    ERROR = "error"  # its own code, or the user's, raised or crashed
    UNKNOWN = "unknown"


def cause_of(exit_: "ProcessExit") -> Cause:
    """Return why a process has ended.

    A signal from outside takes nothing away from the job: that process was well.  One that it raised
    itself (a segmentation fault) is its own doing, like an exit code.
    """
    if exit_.cause:
        return Cause(exit_.cause)
    number = exit_.signal
    if number is None and exit_.code is not None and exit_.code > _CODE_OF_SIGNAL:
        number = exit_.code - _CODE_OF_SIGNAL
    if number in _CRASHES:
        return Cause.ERROR
    if number == signal.SIGTERM:
        return Cause.PREEMPTED
    if number is not None:
        return Cause.KILLED
    if exit_.code is None:
        return Cause.UNKNOWN
    return Cause.SUCCEEDED if exit_.code == 0 else Cause.ERROR

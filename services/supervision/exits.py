"""What the end of a process means: by its exit code or signal, and by what its launcher knows."""

import signal
from enum import Enum

from edlz.services.protocol.messages import ProcessExit

__all__ = ["Cause", "cause_of"]

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


def cause_of(exit_: ProcessExit) -> Cause:
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

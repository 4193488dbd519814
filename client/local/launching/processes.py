"""Processes of this machine, told apart by number and by when they began: numbers are used again.

Whether the system has killed one for its memory is counted apart: the signal alone does not say so.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["OutOfMemory", "Process", "kill", "process_of", "processes_with", "started_at"]

_STATE, _START = 0, 19  # places in /proc/PID/stat behind the name of the program
_ENDED = (b"Z", b"X")
_COUNTERS = Path("/proc/vmstat")  # Linux; `oom_kill` counts since the system started, containers included


class Process(NamedTuple):
    """One process, and no other that gets its number later.

    Attributes
    ----------
    pid : int
        Its number.
    start : int
        When it began, in ticks; 0 where the system does not say.
    """

    pid: int
    start: int

    @property
    def is_alive(self) -> bool:
        return started_at(self.pid) == self.start


class OutOfMemory:
    """Watches the system's count of processes that it killed since memory ran out."""

    def __init__(self, counters: Path = _COUNTERS) -> None:
        self._counters = counters
        self._seen = self._count()

    def has_killed(self) -> bool:
        """Whether that has happened since this was asked before."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        """Return the count; 0 where the system keeps none."""
        try:
            text = self._counters.read_text()
        except OSError:
            return 0
        counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        return int(counts.get("oom_kill", 0))


def process_of(pid: int) -> Process | None:
    """Return the process that has a number now; None if none has."""
    start = started_at(pid)
    return None if start is None else Process(pid, start)


def started_at(pid: int) -> int | None:
    """Return when a process began, in ticks; None if it has ended, 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _start_unknown(pid)
    return None if fields[_STATE] in _ENDED else int(fields[_START])


def processes_with(variable: str, value: str) -> list[Process]:
    """Return this user's processes that were started with a variable of this value, as far as the system tells."""
    wanted = os.fsencode(f"{variable}={value}")
    found = []
    for pid in _pids():
        process = process_of(pid)
        with suppress(OSError):
            if process is not None and wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(process)
    return found


def kill(process: Process) -> None:
    """End a process by SIGKILL; nothing if it has ended, whoever has its number now.

    Raises
    ------
    PermissionError
        If it is somebody else's.
    """
    with suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            if process.is_alive:
                os.kill(process.pid, signal.SIGKILL)
            return
        handle = os.pidfd_open(process.pid)  # means this one process from now on
        try:
            if process.is_alive:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _pids() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _start_unknown(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return 0

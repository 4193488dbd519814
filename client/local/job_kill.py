"""The end of a job by force, whatever state its processes are in: stopped, hung, or left over by a supervisor.

Theory of operation.  The supervisor goes first, since it would start anew what is lost.  What it has started dies
with it, as the system sees to that (`child`); what those started themselves does not.  All of them carry the job's
folder of temporary files in their environment, whose name no other run has.  A signal reaches only the very process
that was found, never one that has got its number since.
"""

import os
import time
from pathlib import Path

from edlz.client.local.job_directory import scratch_of_run
from edlz.client.local.job_lock import lock_holder
from edlz.client.local.launching.process_launcher import SCRATCH_VARIABLE
from edlz.client.local.launching.processes import Process, kill, process_of, processes_with
from edlz.services.errors import ConfigError, EdlzError

__all__ = ["JobWillNotEnd", "kill_job", "processes_left"]

_PATIENCE_S = 10.0  # for what was killed to be gone
_POLL_S = 0.02


class JobWillNotEnd(EdlzError):
    """The system does not end a process that was killed."""

    code = "will-not-end"


def processes_left(path: Path) -> list[Process]:
    """Return what the last run in a job's folder has left over, if nobody runs it now."""
    return [] if lock_holder(path) else _started_for(scratch_of_run(path))


def kill_job(path: Path, word: str) -> None:
    """End the processes of a job's folder; return when they are gone.

    Raises
    ------
    ConfigError
        If they are somebody else's.
    JobWillNotEnd
        If the system holds one of them.
    """
    scratch, holder = scratch_of_run(path), lock_holder(path)
    supervisor = process_of(holder.pid) if holder is not None and holder.pid is not None else None
    if supervisor is not None and lock_holder(path) == holder:  # so it is still that process
        _end(word, [supervisor])
    while left := _started_for(scratch):  # also what was being started meanwhile
        _end(word, left)


def _started_for(scratch: Path | None) -> list[Process]:
    found = [] if scratch is None else processes_with(SCRATCH_VARIABLE, str(scratch))
    return [process for process in found if process.pid != os.getpid()]


def _end(word: str, processes: list[Process]) -> None:
    for process in processes:
        try:
            kill(process)
        except PermissionError as e:
            raise ConfigError(f'job "{word}" is run by somebody else (pid {process.pid})', "ask them") from e
    end = time.monotonic() + _PATIENCE_S
    while left := [process for process in processes if process.is_alive]:
        if time.monotonic() >= end:
            pids = ", ".join(str(process.pid) for process in left)
            raise JobWillNotEnd(
                f'job "{word}": pid {pids} was killed, but the system does not let it end',
                "it may wait for a disk or a network folder that does not answer",
            )
        time.sleep(_POLL_S)

"""What the supervisor of a job has heard last of it, in the folder of its sockets: for those who look at many jobs.

Theory of operation.  Asking a master takes ZeroMQ, NumPy and all messages, half a second of a processor's time to
import, and a list of jobs wants no more than some figures.  So the supervisor, which asks the master all the time, leaves
each second's answer in a file.  Nothing is decided by it: it need not be durable, an older one is not believed, and
then the master is asked.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import JobStatus

__all__ = ["LiveStatus", "live_status"]

_FILE = "status.json"
EVERY_S = 1.0
FRESH_S = 2.0


class LiveStatus:
    """Leaves statuses for others, in a folder that goes with the job's run."""

    def __init__(self, folder: Path) -> None:
        self._path, self._new = folder / _FILE, folder / f"{_FILE}.new"
        self._state, self._due_s = "", 0.0

    def note(self, status: JobStatus, now: float) -> None:
        """Leave a status, without its events, once a second or when the job is in another state."""
        if now < self._due_s and status.state == self._state:
            return
        self._state, self._due_s = status.state, now + EVERY_S
        with suppress(OSError):  # a disk that is full: the master is asked
            self._new.write_bytes(named_status.encode(msgspec.structs.replace(status, events=())))
            os.replace(self._new, self._path)


def live_status(folder: Path) -> JobStatus | None:
    """Return the status that a supervisor has just left in the folder of its sockets; None if nobody has."""
    path = folder / _FILE
    try:
        age_s = time.time() - path.stat().st_mtime
        return named_status.decode(path.read_bytes()) if 0 <= age_s <= FRESH_S else None
    except (OSError, msgspec.DecodeError):
        return None

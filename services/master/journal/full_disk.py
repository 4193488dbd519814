"""A disk that is full under what the master must make durable before it goes on.

Theory of operation.  Nothing may be spoken of that is not durable, so the master waits, doing nothing else, and
tries again until there is room.  Nobody needs it meanwhile: messages may be lost, workers train on as long as their
leases last.  `waited_s` is taken out of its clock, so it takes nobody for silent afterwards.  A disk that stays full
ends the job, which holds its machines no longer and can be resumed.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from edlz.services.errors import EdlzError
from edlz.services.storage.durable import NO_ROOM
from edlz.services.supervision.backoff import Pauses

__all__ = ["DiskFull", "FullDisk"]

LIMIT_S = 300.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
_PROBE_BYTES = 64 * 1024  # more than a transaction, and the shared memory that SQLite makes at its first one

logger = logging.getLogger(__name__)

Done = TypeVar("Done")


class DiskFull(EdlzError):
    """A disk had no room for too long."""

    code = "disk-full"


class FullDisk:
    """Waits for room on the disk of a file.

    Parameters
    ----------
    path : Path
        The file.
    limit_s : float, optional
        How long at most, each time; LIMIT_S if it is not given.

    Attributes
    ----------
    waited_s : float
        Seconds so far.
    """

    def __init__(self, path: Path, limit_s: float | None = None) -> None:
        self._path, self._limit_s = path, LIMIT_S if limit_s is None else limit_s
        self.waited_s = 0.0

    def wait_for(self, work: Callable[[], Done], limit_s: float | None = None) -> Done:
        """Return what the work returns, having tried again while there was no room.

        Parameters
        ----------
        work : callable
            Writes the file; it changes nothing when it raises.
        limit_s : float, optional
            How long at most, if not as long as ever.

        Raises
        ------
        DiskFull
            If there is no room for too long.
        """
        began: float | None = None
        pauses, doubts = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S), 0
        limit_s = self._limit_s if limit_s is None else limit_s
        while True:
            try:
                done = work()
            except (OSError, sqlite3.Error) as error:
                if not self._is_full(error):
                    doubts += 1  # there may be room since a moment ago
                    if doubts > 1:
                        raise
                    if began is None:
                        logger.warning("%s could not be written (%s), tried once more", self._path, error)
                else:
                    began = self._begin(began, limit_s, error)
                time.sleep(pauses.take())
            else:
                if began is not None:
                    self.waited_s += time.monotonic() - began
                    logger.warning("there is room again for %s", self._path)
                return done

    def _begin(self, began: float | None, limit_s: float, error: Exception) -> float:
        """Return since when there is no room, having told it."""
        now = time.monotonic()
        if began is None:
            logger.warning("no room on the disk for %s (%s): the job waits until there is", self._path, error)
            return now
        if now - began > limit_s:
            raise DiskFull(
                f"no room on the disk for {self._path} within {limit_s:.0f}s",
                "make room, then: edlz resume",
            ) from error
        return began

    def _is_full(self, error: OSError | sqlite3.Error) -> bool:
        """Whether an error comes of a full disk: SQLite does not always say so."""
        if isinstance(error, OSError):
            return error.errno in NO_ROOM
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it says where in SQLite
        if code == sqlite3.SQLITE_FULL:
            return True
        return code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and not self._has_room()

    def _has_room(self) -> bool:
        probe = self._path.with_name(f".{self._path.name}.{os.getpid()}.probe")
        try:
            with probe.open("wb", buffering=0) as file:
                if file.write(b"\0" * _PROBE_BYTES) < _PROBE_BYTES:
                    return False
                os.fsync(file.fileno())
        except OSError as error:
            return error.errno not in NO_ROOM
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return True

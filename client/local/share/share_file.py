"""The file in which the jobs of one user on one machine meet to share its slots.

    slots-HOST.json    an entry for each job that runs with --local_slots, replaced as a whole
    slots-HOST.lock    held, by flock, while it is read and replaced

Each host has a file of its own, since several may share EDLZ_HOME and know nothing of each other's
processes.  Entries of processes that have ended are taken out by whoever looks next.  What to make of the
entries is decided in `slots`.
"""

import fcntl
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edlz.client.local.launching.processes import started_at
from edlz.client.local.share.fair_share import Entry, room_of, waiting_text
from edlz.services import strict_json
from edlz.services.errors import ConfigError
from edlz.services.storage.durable import replace_file

__all__ = ["LocalSlots"]

logger = logging.getLogger(__name__)


class LocalSlots:
    """A job's part of the slots of this machine.

    Parameters
    ----------
    home : Path
        The folder that the jobs have in common.
    job : str
        Name of the job.
    slots : int
        How many workers may run at one time, of all jobs together.
    ranks : sequence of int
        Of each of the job's workers, the greatest first; the last one is that of all further workers.
    minimum : int
        Workers that are due to it before anybody else's further ones.
    label : str
        What the user called the ranks.
    say : callable
        Called once with why the job has to wait, if it has to.

    Raises
    ------
    ConfigError
        If the folder cannot be used.
    """

    def __init__(
        self,
        home: Path,
        job: str,
        slots: int,
        ranks: Sequence[int] = (0,),
        minimum: int = 0,
        *,
        label: str = "",
        say: Callable[[str], None] = logger.info,
    ) -> None:
        name = f"slots-{platform.node() or 'here'}"
        self._file, self._lock = home / f"{name}.json", home / f"{name}.lock"
        pid = os.getpid()
        self._own = Entry(
            pid=pid,
            start=started_at(pid) or 0,
            job=job,
            slots=slots,
            ranks=tuple(ranks),
            label=label,
            since_s=time.time(),
            minimum=minimum,
        )
        self._say = say
        self._has_waited = self._is_broken = False
        try:
            home.mkdir(parents=True, exist_ok=True)
            self._lock.touch(mode=0o600)
        except OSError as e:
            raise ConfigError(
                f"{home} cannot be used: {e.strerror}", "name another folder: EDLZ_HOME=DIR"
            ) from e

    def room(self, wanted: int, held: int) -> int:
        """Return how many workers the job may run now; never waits, writes only what is new.

        Parameters
        ----------
        wanted, held : int
            Workers that the job could run, and that it runs.
        """
        try:
            with self._locked():
                self._look(wanted, held)
            self._is_broken = False
        except BlockingIOError:
            pass  # somebody else looks just now; what this job was told last is its own until it lets go
        except OSError as e:
            if not self._is_broken:
                logger.warning(
                    "%s cannot be used: %s; the job goes on with room=%d", self._file, e, self._own.room
                )
            self._is_broken = True
        return self._own.room

    def leave(self) -> None:
        """Give everything back."""
        try:
            with self._locked():
                found = self._read()
                self._write(found, [entry for entry in found if entry.key != self._own.key])
        except OSError as e:  # whoever looks next finds that this process has ended
            logger.debug("slots not given back: %s", e)

    def _look(self, wanted: int, held: int) -> None:
        found = self._read()
        others = [entry for entry in found if entry.key != self._own.key and _is_alive(entry)]
        own = msgspec.structs.replace(self._own, wanted=wanted, held=held)
        own = msgspec.structs.replace(own, room=room_of(own, others))
        self._write(found, sorted([own, *others], key=lambda entry: (entry.since_s, *entry.key)))
        self._own = own
        text = "" if self._has_waited else waiting_text(own, others)
        if text:
            self._has_waited = True
            self._say(text)

    def _read(self) -> list[Entry]:
        try:
            return strict_json.decode(self._file.read_bytes(), list[Entry])
        except FileNotFoundError:
            return []
        except msgspec.DecodeError as e:  # everybody enters himself again
            logger.warning("%s is begun anew: %s", self._file, e)
            return []

    def _write(self, before: list[Entry], after: list[Entry]) -> None:
        if after != before:
            replace_file(self._file, msgspec.json.format(msgspec.json.encode(after)) + b"\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock; raises BlockingIOError where somebody else has it."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(lock)


def _is_alive(entry: Entry) -> bool:
    return started_at(entry.pid) == entry.start

"""The lock of a job's folder: who runs the job now.

    jobs/mnist/lock          held, by flock, by the supervisor; a JSON object with its pid and its sockets' folder
    jobs/mnist/master.lock   held by the master, also by one that was started by hand; its pid

What stands in a file counts only while it is held, and a pid only if that process has the file open.
"""

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from edlz.client.job_files.job_index import MASTER_LOCK
from edlz.services.errors import ConfigError

__all__ = [
    "LOCK",
    "LockHolder",
    "lock_holder",
    "master_by_hand",
    "read_lock",
    "refuse_running_master",
    "take_lock",
    "write_lock",
]

LOCK = "lock"


class LockHolder(NamedTuple):
    """The supervisor of a job that runs.

    Attributes
    ----------
    pid : int, optional
        Its process; None in its first moment, before it has said so.
    sockets : Path, optional
        The folder of the job's sockets; None until there is one.
    """

    pid: int | None
    sockets: Path | None

    def endpoint(self, name: str) -> str | None:
        """Return the address of a service of its job, as ZeroMQ writes it."""
        return f"ipc://{self.sockets}/{name}.sock" if self.sockets else None


def lock_holder(path: Path) -> LockHolder | None:
    """Return who runs the job of a folder now; None if no supervisor does."""
    place = path / LOCK
    try:
        lock = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not _is_locked(lock):
            return None
        owner = read_lock(lock)
    finally:
        os.close(lock)
    pid, sockets = owner.get("pid"), owner.get("sockets")
    if not isinstance(pid, int) or not _has_open(pid, place):
        return LockHolder(None, None)
    return LockHolder(pid, Path(sockets) if isinstance(sockets, str) else None)


def master_by_hand(path: Path) -> str | None:
    """Return the pid of a master that works in a folder, as it has written it; None if none does."""
    try:
        with (path / MASTER_LOCK).open() as lock:
            return (lock.read().strip() or "?") if _is_locked(lock.fileno()) else None
    except OSError:
        return None


def take_lock(path: Path, job_name: str) -> int:
    """Return the open lock file, held; it is removed before it is let go, so it may vanish meanwhile.

    Raises
    ------
    ConfigError
        If a job of this folder runs.
    """
    place = path / LOCK
    while True:
        lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            is_owned, pid = _is_locked(lock), read_lock(lock).get("pid", "?")
            os.close(lock)
            if not is_owned:  # somebody only looked whether it is held
                continue
            raise ConfigError(
                f'job "{job_name}" is running (pid {pid})',
                f"edlz stop {job_name}, or --job_name={job_name}-2",
            ) from e
        with suppress(FileNotFoundError):
            if place.stat().st_ino == os.fstat(lock).st_ino:
                return lock
        os.close(lock)  # its holder has just removed it


def refuse_running_master(path: Path, job_name: str) -> None:
    """Raise ConfigError if a master works in a folder: its files must not be moved from under it."""
    pid = master_by_hand(path)
    if pid is not None:
        raise ConfigError(
            f'job "{job_name}" is run by a master in {path} (pid {pid})',
            f"wait for its end, or --job_name={job_name}-2",
        )


def read_lock(lock: int) -> dict[str, object]:
    """Return what its holder, now or before, has written."""
    try:
        found = json.loads(os.pread(lock, 4096, 0) or b"{}")
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_lock(lock: int, owner: dict[str, object]) -> None:
    """Say who holds it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(owner).encode(), 0)


def _is_locked(lock: int) -> bool:
    """Whether somebody holds an open file: asked for by a shared lock, so two who ask do not see each other."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def _has_open(pid: int, place: Path) -> bool:
    """Whether a process has a file open, as far as the system tells: the pid may be one of long ago."""
    if pid <= 1:
        return False
    if not os.path.isdir("/proc/self/fd"):
        return True
    try:
        wanted, folder = place.stat(), f"/proc/{pid}/fd"
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(f"{folder}/{name}"), wanted):
                    return True
    except PermissionError:
        return True  # somebody else's: no signal reaches it either
    except FileNotFoundError:
        pass
    return False

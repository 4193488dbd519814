"""The folder of a local job: one run at a time, and no earlier run's files lost.

    jobs/mnist/lock        held, by flock, as long as the run lasts; says who holds it
    jobs/mnist/job.yaml    the settings, as a config file that repeats the job
    jobs/mnist/logs/       a file for each process
    jobs/mnist.1/          the run before, moved aside when a new one of the name began

The master keeps its journal and snapshots in the folder too; this module does not know them.  The only
folders that are ever removed here are those that `_make_sockets_folder` made; `job_removal` removes a job's.
"""

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edlz.client.job_files.job_index import JOURNAL, MARK, MASTER_LOCK, SETTINGS, remember
from edlz.client.local.job_lock import LOCK, read_lock, refuse_running_master, take_lock, write_lock
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, LaunchError, LocalProtocolError
from edlz.services.storage.durable import NO_ROOM, replace_file

__all__ = [
    "JobDirectory",
    "check_sockets",
    "hold_idle_job",
    "open_job_directory",
    "scratch_of_run",
    "write_settings",
]

_LOGS = "logs"
_STATUS = "status.json"  # how the master's last life ended
_LONGEST_SOCKET_PATH = 100  # bytes; the system's limit is 107 on Linux, 103 on macOS
_SOCKETS_PREFIX = "edlz-"
_SOCKETS_NAME = re.compile(r"edlz-[a-z0-9_]{8}")  # what tempfile.mkdtemp makes of the prefix
_SCRATCH = "tmp"
_LONGEST_NAME = "/worker-99999.sock"


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """A job's folders while it runs.

    Attributes
    ----------
    path : Path
        The folder itself.
    sockets : Path
        A short folder for `ipc://` addresses, only this user's; gone after the run.
    scratch : Path
        A folder in it for temporary files of the services.
    earlier : Path, optional
        Where an earlier run's files went, if there was one.
    last_word : bytes, optional
        The status that the run before had left in a folder that is resumed.
    """

    path: Path
    sockets: Path
    earlier: Path | None
    last_word: bytes | None = None

    @property
    def logs(self) -> Path:
        return self.path / _LOGS

    @property
    def scratch(self) -> Path:
        return self.sockets / _SCRATCH

    def endpoint(self, name: str) -> str:
        """Return the address of a service of this job, as ZeroMQ writes it."""
        return f"ipc://{self.sockets}/{name}.sock"

    def keep_last_word(self) -> None:
        """Put back what the run before has said: no master has begun another one."""
        if self.last_word is not None and not (self.path / _STATUS).exists():
            replace_file(self.path / _STATUS, self.last_word)


@contextmanager
def open_job_directory(config: JobConfig, *, is_resumed: bool = False) -> Iterator[JobDirectory]:
    """Make the job's folder, hold its lock, and take lock and sockets away at the end.

    Parameters
    ----------
    is_resumed : bool
        Go on with what is in the folder, in place of moving it aside.

    Raises
    ------
    ConfigError
        If a job of this name runs now, or the folder holds files that are no job's.
    LaunchError
        If no folder for sockets can be made.
    """
    path = config.job_directory.absolute()
    with _usable(path):
        _refuse_foreign(path)
        path.mkdir(parents=True, exist_ok=True)
        (path / MARK).touch()
        lock = take_lock(path, config.job_name)
    try:
        owner = {"pid": os.getpid(), "job": config.job_name}
        with _usable(path):
            earlier, last_word = _prepare(path, config, lock, owner, is_resumed=is_resumed)
        sockets = _make_sockets_folder()
        try:
            with _usable(path):
                write_lock(lock, {**owner, "sockets": str(sockets)})
                (sockets / _SCRATCH).mkdir()
            yield JobDirectory(path, sockets, earlier, last_word)
        finally:
            _remove_sockets_folder(sockets)
    finally:
        _let_go(path, lock)


@contextmanager
def hold_idle_job(path: Path, job_name: str) -> Iterator[None]:
    """Keep a job that does not run from beginning; sockets that an interrupted run has left are removed.

    Raises
    ------
    ConfigError
        If it runs, or its folder cannot be written.
    """
    with _usable(path):
        lock = take_lock(path, job_name)
    try:
        left = read_lock(lock).get("sockets")
        with suppress(OSError):  # it is held all the same, and on a full disk a job can be removed
            write_lock(lock, {"pid": os.getpid(), "job": job_name})
        refuse_running_master(path, job_name)
        _remove_left_sockets(left)
        yield
    finally:
        _let_go(path, lock)


def scratch_of_run(path: Path) -> Path | None:
    """Return the folder of temporary files of the run that holds a job's lock, or did so before it was killed."""
    try:
        lock = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        sockets = read_lock(lock).get("sockets")
    finally:
        os.close(lock)
    is_ours = isinstance(sockets, str) and _SOCKETS_NAME.fullmatch(os.path.basename(sockets))
    return Path(str(sockets)) / _SCRATCH if is_ours else None


def write_settings(path: Path, config: JobConfig) -> None:
    """Write down what repeats the job, and what `edlz resume` begins with."""
    replace_file(path / SETTINGS, config.to_yaml())


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Raise ConfigError where the system does not let a folder be used."""
    try:
        yield
    except OSError as e:
        place = "" if e.filename in (None, str(path)) else f" ({e.filename})"
        raise ConfigError(
            f"{path} cannot be used: {e.strerror}{place}",
            "make room on its disk" if e.errno in NO_ROOM else "name another folder: --job_dir=DIR",
        ) from e


def _prepare(
    path: Path, config: JobConfig, lock: int, owner: dict[str, object], *, is_resumed: bool
) -> tuple[Path | None, bytes | None]:
    """Make a folder whose lock is held ready for a run; return where the run before went, and its last word."""
    left = read_lock(lock).get("sockets")
    write_lock(lock, owner)
    _remove_left_sockets(left)
    refuse_running_master(path, config.job_name)
    earlier = None if is_resumed else _move_aside(path)
    (path / _LOGS).mkdir(mode=0o700, exist_ok=True)
    status = path / _STATUS  # of a run before
    last_word = status.read_bytes() if is_resumed and status.is_file() else None
    status.unlink(missing_ok=True)
    remember(config.job_name, path)
    if not is_resumed:  # those of a resumed job count once its master has taken them
        write_settings(path, config)
    return earlier, last_word


def _let_go(path: Path, lock: int) -> None:
    with suppress(OSError):  # where it cannot be removed it is held by nobody
        (path / LOCK).unlink(missing_ok=True)
    os.close(lock)


def _refuse_foreign(path: Path) -> None:
    """A folder with files of somebody else must not be moved aside; a `job.yaml` in it proves nothing."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file, not a job's folder", "name another: --job_dir=DIR")
    if Path.cwd().is_relative_to(path.resolve()):
        raise ConfigError(
            f"{path} is, or holds, the folder you are in", "name an empty folder: --job_dir=DIR"
        )
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    if names and MARK not in names and not names >= {MASTER_LOCK, JOURNAL}:
        raise ConfigError(f"{path} holds files that are no job's", "name an empty folder: --job_dir=DIR")


def _move_aside(path: Path) -> Path | None:
    entries = [entry for entry in path.iterdir() if entry.name not in (LOCK, MARK)]
    if not entries:
        return None
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.{number}")
        try:
            aside.mkdir()
        except FileExistsError:
            number += 1
            continue
        break
    (aside / MARK).touch()
    for entry in entries:
        entry.rename(aside / entry.name)
    return aside


def _make_sockets_folder() -> Path:
    """Make a folder whose sockets' paths the system takes: under TMPDIR if that is short, else /tmp."""
    for parent in _parents_of_sockets():
        if (
            len(os.fsencode(parent)) + len(f"/{_SOCKETS_PREFIX}12345678{_LONGEST_NAME}")
            <= _LONGEST_SOCKET_PATH
        ):
            return _made_for_sockets(parent)
    raise LaunchError(
        f"the path {tempfile.gettempdir()} is too long for sockets", "set TMPDIR to a shorter folder"
    )


def check_sockets() -> Path:
    """Make a socket as a job would, and remove it again; return the folder that jobs' own are made in.

    Raises
    ------
    LaunchError
        If none can be made.
    """
    folder = _make_sockets_folder()
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"{folder}{_LONGEST_NAME}")
    except OSError as e:
        raise LaunchError(f"{folder.parent} takes no sockets: {e.strerror}", "set TMPDIR elsewhere") from e
    finally:
        _remove_sockets_folder(folder)
    return folder.parent


def _made_for_sockets(parent: str) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=_SOCKETS_PREFIX, dir=parent))
    except OSError as e:
        raise LaunchError(f"{parent} cannot be used for sockets: {e.strerror}", "set TMPDIR elsewhere") from e


def _remove_left_sockets(left: object) -> None:
    """Remove the sockets of a run that was killed before it could do so itself.

    `left` is what a file says, so it may be anything: a text that is not the path of a folder that
    `_make_sockets_folder` can have made removes nothing.
    """
    if isinstance(left, str) and _is_sockets_folder(left) and Path(left).is_dir():
        _remove_sockets_folder(Path(left))


def _remove_sockets_folder(path: Path) -> None:
    """Remove a folder of sockets with what is in it, and never any other folder.

    Raises
    ------
    LocalProtocolError
        If the path is not one of `_make_sockets_folder`: a bug, and nothing is removed.
    """
    if not _SOCKETS_NAME.fullmatch(path.name) or not path.is_absolute() or path.is_symlink():
        raise LocalProtocolError(f'"{path}" is no folder of sockets and must not be removed')
    shutil.rmtree(path, ignore_errors=True)


def _is_sockets_folder(text: str) -> bool:
    path = Path(text)
    if not _SOCKETS_NAME.fullmatch(path.name) or path.is_symlink():
        return False
    if str(path.parent) not in _parents_of_sockets():
        return False
    return path.is_dir() and path.stat().st_uid == os.getuid()


def _parents_of_sockets() -> tuple[str, str]:
    return (tempfile.gettempdir(), "/tmp")

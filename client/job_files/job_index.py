"""Which jobs there are on this machine, by name and by folder.

    EDLZ_HOME/jobs/<job>     a job's folder, unless --job_dir names another one
    EDLZ_HOME/jobs/<job>.1   an earlier run of it, moved aside
    EDLZ_HOME/index/<job>    a text file: the folder of a job that lies elsewhere

Knows folders and the settings in them.  Whether a job runs, and how it fares, `local.job_view` finds out.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edlz.client.job_files.settings_text import settings_in
from edlz.services.configuration.job_config import JobConfig, edlz_home
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.errors import EdlzError
from edlz.services.storage.durable import replace_file

__all__ = [
    "JOURNAL",
    "MARK",
    "MASTER_LOCK",
    "REPORT",
    "SETTINGS",
    "LocalJob",
    "NoSuchJob",
    "earlier_runs",
    "find_job",
    "forget",
    "is_job",
    "list_jobs",
    "no_such_job",
    "remember",
]

MARK = ".edlz-job"  # we made this folder, so we may move or remove what is in it
SETTINGS = "job.yaml"
MASTER_LOCK, JOURNAL = "master.lock", "journal.sqlite"  # of a master, also of one started by hand
REPORT = "report.html"  # that it leaves at its end
_SIGNS = (MARK, SETTINGS, JOURNAL)
_NAME = re.compile(r"[A-Za-z0-9][\w-]*(\.\d+)?")
_EARLIER = re.compile(r"\.\d+")


class NoSuchJob(EdlzError):
    """Nothing on this machine is known under that name."""

    code = "no-such-job"
    exit_code = 4


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A job's folder.

    Attributes
    ----------
    name : str
        Of the job; of an earlier run that of its folder, `mnist.1`.
    path : Path
        The folder, absolute.
    word : str
        What finds it on a command line: the name, or the folder where a newer job has the name.
    is_earlier : bool
        Whether it was moved aside.
    """

    name: str
    path: Path
    word: str
    is_earlier: bool = False

    @property
    def logs(self) -> Path:
        """The folder of the log files."""
        return self.path / "logs"

    def settings(self) -> Mapping[str, Any]:
        """Return the settings that the job keeps; nothing if they cannot be read."""
        try:
            return settings_in((self.path / SETTINGS).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return {}

    def checkpoint_directory(self) -> Path:
        """Return where the job writes its checkpoints."""
        named = str(self.settings().get("checkpoint_dir") or "")
        return JobConfig(
            job_name=self.name, job_dir=str(self.path), checkpoint_dir=named
        ).checkpoint_directory


def list_jobs() -> list[LocalJob]:
    """Return all jobs by name, without their earlier runs; forget those whose folder is gone."""
    elsewhere = {job.name: job for job in _jobs_elsewhere()}
    found = list(elsewhere.values())
    for name in _names_in(_jobs_folder()):
        if not _EARLIER.search(name):
            job = _job_at_home(name)
            if job is not None:
                word = str(job.path) if name in elsewhere else name
                found.append(LocalJob(name, job.path, word))
    return sorted(found, key=lambda job: (job.name, job.word))


def earlier_runs() -> list[LocalJob]:
    """Return the runs that were moved aside when another one of their name began."""
    found = []
    for job in list_jobs():
        for name in _names_in(job.path.parent):
            path = job.path.with_name(name)
            if _EARLIER.fullmatch(name.removeprefix(job.path.name)) and is_job(path):
                is_at_home = path.parent == _jobs_folder()
                found.append(LocalJob(name, path, name if is_at_home else str(path), is_earlier=True))
    return sorted(found, key=lambda job: job.path)


def find_job(text: str) -> LocalJob:
    """Return the job that a name or a folder means: the newest one of that name.

    Raises
    ------
    NoSuchJob
        If there is none.
    """
    if _NAME.fullmatch(text):
        job = _job_elsewhere(text) or _job_at_home(text)
        if job is not None:
            return job
    path = Path(text).absolute()
    if is_job(path):
        for job in (*list_jobs(), *earlier_runs()):
            if job.path == path:
                return job
        name = LocalJob(path.name, path, text).settings().get("job_name")
        return LocalJob(str(name or path.name), path, text)
    raise no_such_job(text)


def no_such_job(text: str) -> NoSuchJob:
    """Return the error, with the names that are near."""
    known = [job.name for job in list_jobs()]
    there = f"jobs here: {', '.join(known)}" if known else f"no job has been run here yet ({_jobs_folder()})"
    return NoSuchJob(f'no job "{text}"', did_you_mean(nearest(text, known)) or there)


def remember(name: str, path: Path) -> None:
    """Note where a job lies, from now on the one that its name means.

    A home that cannot be written to only means that the job is found by its folder alone.
    """
    with suppress(OSError):
        entry = _index_folder() / name
        if path == _jobs_folder() / name:
            entry.unlink(missing_ok=True)
            return
        entry.parent.mkdir(parents=True, exist_ok=True)
        replace_file(entry, f"{path}\n")


def forget(job: LocalJob) -> None:
    """Take a job out of the index, if it is the one that stands there."""
    if _NAME.fullmatch(job.name):
        entry = _index_folder() / job.name
        if _read_entry(entry) == job.path:
            entry.unlink(missing_ok=True)


def _jobs_elsewhere() -> Iterator[LocalJob]:
    for name in _names_in(_index_folder()):
        job = _job_elsewhere(name)
        if job is not None:
            yield job


def _job_elsewhere(name: str) -> LocalJob | None:
    entry = _index_folder() / name
    path = _read_entry(entry)
    if path is None:
        return None
    if not is_job(path):
        with suppress(OSError):
            entry.unlink(missing_ok=True)
        return None
    return LocalJob(name, path, name)


def _job_at_home(name: str) -> LocalJob | None:
    path = _jobs_folder() / name
    if not is_job(path):
        return None
    return LocalJob(name, path, name, is_earlier=bool(_EARLIER.search(name)))


def _read_entry(entry: Path) -> Path | None:
    try:
        text = entry.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return Path(text) if text and Path(text).is_absolute() else None


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if _NAME.fullmatch(name))
    except OSError:
        return []


def is_job(path: Path) -> bool:
    """Whether a folder is that of a job."""
    return path.is_dir() and any((path / sign).is_file() for sign in _SIGNS)


def _jobs_folder() -> Path:
    return edlz_home() / "jobs"


def _index_folder() -> Path:
    return edlz_home() / "index"

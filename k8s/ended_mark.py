"""How a job ended, for the next life of its master's container: a job that is over does not begin again."""

import logging
from pathlib import Path

import msgspec

from edlz.services import strict_json
from edlz.services.protocol.job_status import JobStatus
from edlz.services.storage.durable import replace_file

__all__ = ["read_mark", "write_mark"]

logger = logging.getLogger(__name__)


class _Mark(msgspec.Struct, frozen=True):
    code: int
    status: JobStatus


def write_mark(folder: Path, pod_uid: str, code: int, status: JobStatus) -> None:
    """Note in the job's folder that the job ended in this pod, and how."""
    path = _path(folder, pod_uid)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, strict_json.encode(_Mark(code, status)))
    except OSError as error:  # the exit code tells it too
        logger.warning("%s could not be written: %s", path, error)


def read_mark(folder: Path, pod_uid: str) -> tuple[int, JobStatus] | None:
    """Return exit code and last status, if the job has ended in this pod before."""
    try:
        mark = strict_json.decode(_path(folder, pod_uid).read_bytes(), _Mark)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        logger.warning("%s could not be read: %s", _path(folder, pod_uid), error)
        return None
    return mark.code, mark.status


def _path(folder: Path, pod_uid: str) -> Path:
    return folder / f"ended-{pod_uid}.json"

"""What is left of a master's process that ends, for whoever comes after it.

Its last word, why it ended, goes into the termination message of its container: what its log says of it may be cut off.
Kubernetes keeps 2 KiB of a log for a container that writes nothing there, and the traceback of a task group is longer.

A mark in the job's folder says how the job ended, for the next life of the container: a job that is over does not
begin again.
"""

import logging
import os
import traceback
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

import msgspec

from edlz.services import strict_json
from edlz.services.errors import EdlzError
from edlz.services.protocol.job_status import JobStatus
from edlz.services.storage.durable import replace_file

__all__ = ["last_word", "read_mark", "with_last_word", "write_mark"]

PLACE = Path("/dev/termination-log")  # where a pod's specification leaves it, and its kubelet makes it
_MOST_BYTES = 4096

logger = logging.getLogger(__name__)


async def with_last_word(running: Awaitable[int], place: Path = PLACE) -> int:
    """Return what a service returns; leave a word of what it raises, and raise it further."""
    try:
        return await running
    except Exception as raised:
        with suppress(OSError):  # outside of a container nobody has made it
            file = os.open(place, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(file, last_word(raised).encode()[:_MOST_BYTES])
            finally:
                os.close(file)
        raise


def last_word(raised: BaseException) -> str:
    """Return the `error:` and `help:` lines of what ended a service, of a group the first of its causes."""
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    if isinstance(raised, EdlzError):
        return f"error: {raised.message}\n" + (f"help: {raised.help}\n" if raised.help else "")
    frames = traceback.extract_tb(raised.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    text = str(raised).partition("\n")[0]
    told = f"{type(raised).__name__}: {text}" if text else type(raised).__name__
    return f"error: edlz itself failed: {told}{where}\nhelp: please report this, with the log of the pod\n"


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

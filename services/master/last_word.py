"""The status that a master leaves in the job's folder for those who look at the job later; the journal has what counts."""

import logging
from pathlib import Path

import msgspec

from edlz.services import strict_json
from edlz.services.checkpoints.durable import replace_file
from edlz.services.job_status import JobStatus
from edlz.services.master.full_disk import DiskFull, FullDisk

__all__ = ["leave_last_word"]

PATIENCE_S = 8.0  # on a full disk

logger = logging.getLogger(__name__)


def leave_last_word(folder: Path, status: JobStatus) -> None:
    """Write the status; a disk that does not take it costs a warning."""
    path, text = folder / "status.json", msgspec.json.format(strict_json.encode(status))
    try:
        FullDisk(path, PATIENCE_S).wait_for(lambda: replace_file(path, text))
    except (OSError, DiskFull) as error:
        logger.warning("%s could not be written: %s", path, error)

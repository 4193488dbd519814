"""What a master leaves when it ends, for those who look at the job later or begin it again: it costs no job its success."""

import logging
from pathlib import Path

import msgspec

from edlz.services.errors import EdlzError
from edlz.services.master.journal.full_disk import DiskFull, FullDisk
from edlz.services.master.journal.journal import Journal
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import JobStatus
from edlz.services.storage.durable import replace_file

__all__ = ["leave_last_word", "note_end"]

PATIENCE_S = 8.0  # on a full disk

logger = logging.getLogger(__name__)


def leave_last_word(folder: Path, status: JobStatus) -> None:
    """Write the status; a disk that does not take it costs a warning."""
    path, text = folder / "status.json", msgspec.json.format(named_status.encode(status))
    try:
        FullDisk(path, PATIENCE_S).wait_for(lambda: replace_file(path, text))
    except (OSError, DiskFull) as error:
        logger.warning("%s could not be written: %s", path, error)


def note_end(journal: Journal, term: int) -> None:
    """Note that the master of a complete job has left by itself; a journal that does not take it costs a warning."""
    try:
        journal.write(term, {"has_ended": True}, patience_s=PATIENCE_S)
    except (OSError, EdlzError) as error:
        logger.warning("that the job has ended could not be noted: %s", error)

"""The page of a job that has ended, as a file among the job's: it costs no job its success."""

import logging
from contextlib import suppress
from pathlib import Path

from edlz.services.master.journal.full_disk import DiskFull, FullDisk
from edlz.services.master.page.content import Content
from edlz.services.master.page.rendering import render
from edlz.services.storage.durable import replace_file

__all__ = ["REPORT", "forget_report", "write_report"]

REPORT = "report.html"
PATIENCE_S = 2.0  # on a full disk

logger = logging.getLogger(__name__)


def write_report(folder: Path, content: Content) -> None:
    """Write it; a disk that does not take it costs a warning."""
    path = folder / REPORT
    try:
        page = render(content.tree(), is_report=True)
        FullDisk(path, PATIENCE_S).wait_for(lambda: replace_file(path, page))
    except (OSError, DiskFull) as error:
        logger.warning("%s could not be written: %s", path, error)
    except Exception:  # what is only shown ends no job
        logger.exception("%s could not be made", path)


def forget_report(folder: Path) -> None:
    """Remove the one that an earlier run has left, for a job that goes on."""
    with suppress(OSError):  # the next one takes its place
        (folder / REPORT).unlink(missing_ok=True)

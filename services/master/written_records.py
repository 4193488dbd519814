"""What a master writes for those after it: entries of its journal, with what is shown of the job; and, when it ends, its last word."""

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from edlz.services.errors import EdlzError
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.instructions import Journal as Entry
from edlz.services.master.journal.full_disk import DiskFull, FullDisk
from edlz.services.master.journal.journal import Journal
from edlz.services.master.page.status_page import StatusPage
from edlz.services.master.progress.progress import Progress
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import JobStatus
from edlz.services.storage.durable import replace_file

__all__ = ["JournalWriting", "leave_last_word", "note_end"]

PATIENCE_S = 8.0  # of a last word, on a full disk

logger = logging.getLogger(__name__)


class JournalWriting:
    """The entries of one master's life.

    Parameters
    ----------
    journal : Journal
    core : MasterCore
        Names the term.
    progress : Progress
        What is shown of the job, which the next master is to know.
    clock : callable () -> float
    page : StatusPage, optional
        The next master opens it at the same port.
    """

    def __init__(
        self,
        journal: Journal,
        core: MasterCore,
        progress: Progress,
        clock: Callable[[], float],
        page: StatusPage | None,
    ) -> None:
        self._journal, self._core, self._progress, self._clock = journal, core, progress, clock
        self._page = page

    def enter(self, entry: Entry) -> float:
        """Write an entry, with the events that the journal does not have; return the seconds that the disk was full for.

        Raises
        ------
        TermLost
            If another master has begun; nothing is written.
        """
        before_s, events = self._journal.waited_s, self._progress.events.to_keep
        fields = self._with_final_status(entry.fields)
        fields = fields if events is None else fields | {"events": events}
        if "term" in fields and self._page is not None:
            fields = fields | {"page_port": self._page.port}
        self._journal.write(self._core.term, fields, entry.added)
        if events is not None:
            self._progress.events.on_kept(events, self._clock())
        waited_s = self._journal.waited_s - before_s
        if waited_s:
            self._progress.on_pause(waited_s)
        return waited_s

    def _with_final_status(self, fields: dict[str, object]) -> dict[str, object]:
        """Return journal entries; with that which completes the job goes how it looks then, for good."""
        if not fields.get("is_complete"):
            return fields
        final = msgspec.structs.replace(self._progress.status(0, self._clock()), page="")
        return fields | {"final": final}

    def keep_shown(self, now: float) -> None:
        """Let the next master know what has happened, and how; a disk that is full costs no more than that.

        Raises
        ------
        TermLost
            If another master has begun; nothing is written.
        """
        shown, term = self._progress, self._core.term
        events, curves = shown.events.due(now), shown.curves.due(now)
        try:
            if events is not None:
                self._journal.write(term, {"events": events}, patience_s=0)
                shown.events.on_kept(events, now)
            if curves is not None:
                added = {"curves": curves.added}
                self._journal.write(term, {"curve_end": curves.end}, added, patience_s=0)
                shown.curves.on_kept(curves, now)
        except DiskFull:
            shown.events.put_off(now)
            shown.curves.put_off(now)


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

"""What a master enters in its journal: what its core asks for, and with that what is shown of the job."""

from collections.abc import Callable

import msgspec

from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.instructions import Journal as Entry
from edlz.services.master.journal.full_disk import DiskFull
from edlz.services.master.journal.journal import Journal
from edlz.services.master.page.status_page import StatusPage
from edlz.services.master.progress.progress import Progress

__all__ = ["JournalWriting"]


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

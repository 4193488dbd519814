"""A simulated job whose masters draw its curves, each going on from what those before have kept."""

from typing import Any

from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary import inputs as to_master
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.progress.progress import Progress
from edlz.services.protocol.curves import CurveEnd, CurveRow
from edlz.services.protocol.messages import WorkerStatus
from edlz.services.ps.core.inputs import Request
from tests.simulation.job import SimulatedJob
from tests.simulation.processes import Process
from tests.simulation.schedule import Schedule

__all__ = ["HISTORY_MOMENTS", "DrawnJob"]

BEGAN = 1_777_885_900.0
HISTORY_MOMENTS = ("row", "row 2", "due", "kept", "kept 2")


class DrawnJob(SimulatedJob):
    """A job with curves.

    Its moments, besides those of a job: the first and a second row end; the journal is to have some, has some, and has some again.

    Attributes
    ----------
    progress : Progress
        Of the newest master.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._drawing: dict[int, Progress] = {}  # by process: a master's successor may begin before it ends
        self._chunks: list[tuple[CurveRow, ...]] = []
        self._end: CurveEnd | None = None
        self._keeps = 0
        super().__init__(schedule)

    def launch(self, role: str) -> Process:
        process = super().launch(role)
        if role == "m":
            kept = JournalState(began=BEGAN, curves=tuple(self._chunks), curve_end=self._end)
            self.progress = Progress(process.core, BEGAN + self.now, self.now, kept)
            self._drawing[process.name] = self.progress
        return process

    def feed(self, process: Process, event: Any) -> None:
        super().feed(process, event)
        progress = self._drawing.get(process.name)
        body = event.body if isinstance(event, Request) else None
        if progress is not None and process.is_up and isinstance(body, WorkerStatus):
            progress.on_worker(body, self.now)

    def give(self, process: Process, event: Any) -> None:
        super().give(process, event)
        progress = self._drawing.get(process.name)
        if progress is not None and process.is_up and isinstance(event, to_master.Tick):
            self._look(process.core, progress)

    def _look(self, core: MasterCore, progress: Progress) -> None:
        """As a master does a few times a second."""
        progress.sample(self.now)
        for number in range(min(2, len(progress.curves.rows))):
            self.reach(HISTORY_MOMENTS[number])
        due = progress.curves.due(self.now)
        if due is None:
            return
        self.reach("due")
        if core.term != self.journal["term"]:  # the journal is a younger one's
            return
        assert due.added.first <= len(self._chunks), "a hole"
        self._chunks[due.added.first : due.added.first + len(due.added.values)] = due.added.values  # type: ignore[assignment]
        self._end = due.end
        progress.curves.on_kept(due, self.now)
        self._keeps += 1
        self.reach("kept" if self._keeps == 1 else "kept 2")

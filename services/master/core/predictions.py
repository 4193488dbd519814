"""The core that keeps the books of a job that predicts, or analyzes: whose tasks' files are there, and when all are.

Theory of operation.  The tasks are leased, reported and left out as those of an evaluation round.  A task is done
when its predictions are: in a durable file, named by the task, or in the hands of the user's code.  Whoever does a
task a second time writes the same file, so the first report counts, and a lost one costs time only.  What is done goes
to the journal now and then; the next master does not have it done again.  When all is done the shell looks at the
files, and says in their folder that they are whole; a file that is gone is written again first.
"""

from collections.abc import Collection

from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds
from edlz.services.master.core.vocabulary.instructions import Announce, Journal, PublishPredictions
from edlz.services.master.core.vocabulary.records import JournalState, PredictedTask
from edlz.services.protocol.messages import DoneEvaluation, PartFile
from edlz.services.protocol.plan import Plan

__all__ = ["Predictions"]

SAVE_EVERY_S = 2.0
SAVED_TASKS_PER_S = 5000.0  # the journal takes all of them each time: not more than so many, on average


class Predictions:
    """The predictions of one job, or its statistics.

    Parameters
    ----------
    journal : JournalState
        What earlier masters have noted.
    evaluation : EvaluationRounds
        Told of it.

    Attributes
    ----------
    is_over : bool
        Whether nothing is left to publish; from the start in a job that does not predict.
    """

    def __init__(
        self, plan: Plan, journal: JournalState, evaluation: EvaluationRounds, *, has_files: bool
    ) -> None:
        self._evaluation, self._plan, self._has_files = evaluation, plan, has_files
        self._done = {entry.task: entry for entry in journal.predicted}
        self._saved_count, self._saved_s = len(self._done), 0.0
        self._is_publishing = False
        self.is_over = not plan.gives_parts
        evaluation.known = {entry.task: _report_of(entry) for entry in journal.predicted}

    @property
    def records(self) -> int:
        """Records of the tasks that are done."""
        return sum(self._plan.evaluation_ranges[task].count for task in self._done)

    def take(self, done: DoneEvaluation) -> None:
        """A task is done, for the first time."""
        if self.is_over:
            return
        part = done.part or PartFile(bytes=0, checksum="")
        self._done[done.task] = PredictedTask(done.task, done.records, part.bytes, part.checksum)
        self._evaluation.known[done.task] = done

    def on_tick(self, now: float) -> list[Journal]:
        pause_s = max(SAVE_EVERY_S, len(self._done) / SAVED_TASKS_PER_S)
        if now - self._saved_s < pause_s:
            return []
        self._saved_s = now
        return self.save()

    def save(self) -> list[Journal]:
        """Note what is done, if anything is new."""
        if len(self._done) == self._saved_count:
            return []
        self._saved_count = len(self._done)
        return [Journal({"predicted": self._entries})]

    def advance(self, version: int) -> list[Journal | PublishPredictions]:
        """All tasks are done or left out: publish what there is; what a manifest may say by then is not done again."""
        if self.is_over or self._is_publishing:
            return []
        if not self._has_files:
            self.is_over = True
            return []
        self._is_publishing = True
        entries = tuple(entry for entry in self._entries if entry.task not in self._evaluation.skipped)
        skipped = tuple(sorted(self._evaluation.skipped))
        return [*self.save(), PublishPredictions(version, entries, skipped)]

    def on_published(self, missing: Collection[int]) -> list[Announce]:
        """The predictions are whole, but for the files of these tasks, which are not there any more."""
        self._is_publishing = False
        if not missing:
            self.is_over = True
            return [Announce("predictions", f"the {self._what} are complete.")]
        for task in missing:
            self._done.pop(task, None)
        self._saved_count = -1  # whatever is written in their place
        self._evaluation.repeat(missing)
        count = len(missing)
        files = "1 file is" if count == 1 else f"{count} files are"
        return [Announce("predictions", f"{files} gone, or not as written: {self._done_word} again.", 30)]

    def on_failed(self) -> None:
        """They could not be published, which ends the job."""
        self._is_publishing = False

    @property
    def _what(self) -> str:
        return "statistics" if self._plan.analyzes else "predictions"

    @property
    def _done_word(self) -> str:
        return "analyzed" if self._plan.analyzes else "predicted"

    @property
    def _entries(self) -> tuple[PredictedTask, ...]:
        return tuple(self._done[task] for task in sorted(self._done))


def _report_of(entry: PredictedTask) -> DoneEvaluation:
    part = PartFile(bytes=entry.bytes, checksum=entry.checksum)
    return DoneEvaluation(round=0, task=entry.task, records=entry.records, states={}, part=part)

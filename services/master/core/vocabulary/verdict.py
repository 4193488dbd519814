"""How a job has ended: complete, stopped or failed.  Whatever comes first is settled for good."""

from edlz.services.master.core.vocabulary.instructions import Announce
from edlz.services.master.core.vocabulary.phase import Phase
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.job_status import FailureView

__all__ = ["Verdict"]


class Verdict:
    """The end of one job, as soon as it is settled.

    Parameters
    ----------
    journal : JournalState
        The job may be complete already.

    Attributes
    ----------
    digest : str
        Of the parameters of a complete job.
    is_stopped : bool
        Whether the job has ended before it was done, since somebody wanted that.
    stopped_at : int
        The version that a job which was stopped goes on from; 0 if it has taken no checkpoint for that.
    failure : FailureView or None
        Why the job has ended without success: the first cause.
    was_complete : bool
        Whether an earlier master has completed the job: then nobody is needed, who comes hears that it is over.
    """

    def __init__(self, journal: JournalState) -> None:
        self._is_complete = self.was_complete = journal.is_complete
        self.digest = journal.digest
        self.is_stopped, self.stopped_at = False, 0
        self.failure: FailureView | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything is done, and the journal says so."""
        return self._is_complete

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, in whatever way."""
        return self.is_complete or self.is_stopped or self.failure is not None

    @property
    def is_cut_short(self) -> bool:
        """Whether workers are to end although the job is not complete."""
        return self.failure is not None or self.is_stopped

    @property
    def phase(self) -> Phase:
        """That of a job that is over."""
        if self.failure is not None:
            return Phase.FAILED
        return Phase.COMPLETE if self.is_complete else Phase.STOPPED

    def complete(self, digest: str) -> None:
        """Everything is done; it is journalled before anybody hears of it."""
        self._is_complete, self.digest = True, digest

    def stop(self, saved: int) -> None:
        """The job ends before it is done; `saved`: the version of the checkpoint to go on from, 0 for none."""
        self.is_stopped, self.stopped_at = True, saved

    def fail(self, failure: FailureView) -> list[Announce]:
        """End the job without success; of several causes the first one stays."""
        if self.is_over:
            return []
        self.failure = failure
        return [Announce("failed", failure.text, 40)]

"""The core that counts masters in a row that have achieved nothing: one that ends at each start is a loop.

Theory of operation.  Whatever starts the master again (a supervisor, a kubelet) cannot know whether the job gets on.
Each master enters in the journal that it has begun, and takes that back when the job achieves something, or ends
as it should.  One that finds too many entries fails the job; `edlz resume` begins to count anew.
"""

from edlz.services.master.core.vocabulary.instructions import Journal
from edlz.services.protocol.job_status import FailureView

__all__ = ["MOST_VAIN_TERMS", "VainTerms"]

MOST_VAIN_TERMS = 10


class VainTerms:
    """How often the job's master has been started in vain.

    Parameters
    ----------
    before : int
        Masters in a row that have entered themselves and not taken it back.
    """

    def __init__(self, before: int) -> None:
        self._before, self._is_taken_back = before, False

    @property
    def fields(self) -> dict[str, object]:
        """What is journalled with the term."""
        return {"vain_terms": self._before + 1}

    @property
    def failure(self) -> FailureView | None:
        """Why this master should not even try."""
        if self._before < MOST_VAIN_TERMS:
            return None
        text = f"its master was started {self._before} times in a row, and the job got no further"
        return FailureView(text=text, help="the master's log says why it ended")

    def take_back(self) -> list[Journal]:
        """The job has achieved something, or ends as it should."""
        if self._is_taken_back:
            return []
        self._is_taken_back = True
        return [Journal({"vain_terms": 0})]

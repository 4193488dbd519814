"""The cores of a master's own term: whether it was begun in vain, whether a later one has begun, and when it may leave.

Theory of operation.  Whatever starts the master again (a supervisor, a kubelet) cannot know whether the job gets on.
Each master enters in the journal that it has begun, and takes that back when the job achieves something, or ends
as it should.  One that finds too many entries fails the job: one that ends at each start is a loop.  `edlz resume` begins
to count anew.  When the job is over a master stays until whoever needs to hear of it has.
"""

from collections.abc import Hashable

from edlz.services.errors import RemoteProtocolError
from edlz.services.master.core.vocabulary.instructions import Instruction, Journal, Reply
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import ErrorReply

__all__ = ["FAREWELL_S", "MOST_VAIN_TERMS", "Farewell", "VainTerms", "look_up"]

MOST_VAIN_TERMS = 10
FAREWELL_S = 8.0  # how long the end of the job waits for everybody to hear of it
PARTING_S = 0.5  # between the last answer and the end of the connections


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


class Farewell:
    """The last seconds of one master, from when its job was over.

    Attributes
    ----------
    has_supervisor_heard : bool
        Whether the supervisor has been answered since.
    """

    def __init__(self) -> None:
        self.has_supervisor_heard = False
        self._over_since_s: float | None = None
        self._told_since_s: float | None = None

    def is_over(self, now: float, *, is_told: bool, is_supervised: bool, was_complete: bool) -> bool:
        """Whether nobody needs this master any more; asked again and again once the job is over.

        A supervisor ends whoever is left.  Without one, an answer that is lost is waited for for ever, and closing
        a connection on which something has just come in may break it before it is read; and a master that found
        its job complete does not know who is there.

        Parameters
        ----------
        is_told : bool
            Whether all that are known have heard of the end.
        is_supervised, was_complete : bool
            As of `JobProcesses` and `Verdict`.
        """
        if self._over_since_s is None:
            self._over_since_s = now
        if not is_told:
            self._told_since_s = None
        elif self._told_since_s is None:
            self._told_since_s = now
        if now - self._over_since_s > FAREWELL_S:
            return True
        if self._told_since_s is None:
            return False
        if is_supervised:
            return self.has_supervisor_heard
        return now - self._told_since_s > (FAREWELL_S if was_complete else PARTING_S)


def look_up(to: Hashable, name: str, term: int, own: int) -> list[Instruction]:
    """Somebody has heard a master of a later term, or is wrong: the journal knows, and ends this one if need be."""
    text = f"{name} speaks of a master of term {term}; this one, of term {own}, is the newest"
    error = RemoteProtocolError(text)
    return [Journal({}), Reply(to, ErrorReply(code=error.code, message=error.message))]

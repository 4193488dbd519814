"""The core that says when a master may leave: the job is over, and whoever needs to hear of it has."""

__all__ = ["FAREWELL_S", "Farewell"]

FAREWELL_S = 8.0  # how long the end of the job waits for everybody to hear of it
PARTING_S = 0.5  # between the last answer and the end of the connections


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

"""The clock of a cluster, as the answers of its API server tell it: whoever looks at ages may have another one."""

from email.utils import parsedate_to_datetime

__all__ = ["ClusterClock"]

_HALF_S = 0.5  # a date has whole seconds, cut off


class ClusterClock:
    """How far the cluster's clock is ahead of this machine's.

    Attributes
    ----------
    ahead_s : float
        Seconds, less than one wrong; 0 if no answer has told.
    """

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def on_answer(self, date: str, now: float) -> None:
        """Take the `Date` of an answer that has just come; `now`: seconds since the epoch, here."""
        try:
            at = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return  # none, or none that can be read
        self.ahead_s = at + _HALF_S - now

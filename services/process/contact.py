"""How long a service goes on without its master: a core without a clock.

Theory of operation.  A service whose master has gone for good would wait, and hold its room, for ever.  Whoever has a
limit ends by itself when nothing was heard for so long, from its start on if nothing was heard at all.  Only time
in which the service itself ran counts: one that was frozen has to listen first.
"""

from edlz.services.errors import PeerUnavailable

__all__ = ["LONGEST_STEP_S", "Contact"]

LONGEST_STEP_S = 2.0  # between two ticks; what is longer was spent elsewhere


class Contact:
    """What a service knows of its master's life.

    Parameters
    ----------
    address : str
        Where the master should be.
    limit_s : float
        Seconds without a word after which the service is of no use; 0 for none.
    """

    def __init__(self, address: str, limit_s: float) -> None:
        self._address, self._limit_s = address, limit_s
        self._silent_s = 0.0
        self._ticked_s: float | None = None
        self._has_heard = False

    def on_heard(self) -> None:
        """The master has answered."""
        self._silent_s, self._has_heard = 0.0, True

    def on_tick(self, now: float) -> PeerUnavailable | None:
        """Return why the service should end; None as long as it should not."""
        if self._ticked_s is not None:
            self._silent_s += min(now - self._ticked_s, LONGEST_STEP_S)
        self._ticked_s = now
        if not self._limit_s or self._silent_s < self._limit_s:
            return None
        word = "any more" if self._has_heard else "at all"
        return PeerUnavailable(
            f"the master at {self._address} does not answer {word}, for {self._silent_s:.0f}s now",
            "see whether its pod runs, and whether a network policy lets this pod reach it",
        )

"""How long to wait before another attempt at what fails, or before something that keeps ending is started again."""

from dataclasses import dataclass, field

__all__ = ["Backoff", "Pauses"]

SHORT_LIFE_S = 10.0
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 30.0


@dataclass(slots=True)
class Pauses:
    """How long to wait after each attempt that has failed.

    Parameters
    ----------
    next_s : float
        The first pause; from then on the one that comes next.
    longest_s : float
    """

    next_s: float
    longest_s: float

    def take(self, longest_s: float | None = None) -> float:
        """Return how long to wait now.

        Parameters
        ----------
        longest_s : float, optional
            The limit for this pause and the next one, in place of the usual one.
        """
        longest_s = self.longest_s if longest_s is None else longest_s
        pause_s = min(self.next_s, longest_s)
        self.next_s = min(2.0 * pause_s, longest_s)
        return pause_s


@dataclass(slots=True)
class Backoff:
    """Delays that double while lives are short, or nothing is achieved from one end to the next.

    Attributes
    ----------
    short_lives : int
        How many in a row have been short.
    vain_lives : int
        How many have ended in a row without anything achieved in between; the first of them included.
    """

    short_lives: int = 0
    vain_lives: int = 0
    _achieved: int = 0  # by the end before
    _delays: Pauses = field(default_factory=lambda: Pauses(FIRST_DELAY_S, LONGEST_DELAY_S))

    def on_end(self, lived_s: float, achieved: int | None = None) -> float:
        """Return the seconds to wait after a life of this length.

        Parameters
        ----------
        achieved : int, optional
            What has been achieved so far, as a number that rises; None if that is not known.
        """
        self.short_lives = self.short_lives + 1 if lived_s < SHORT_LIFE_S else 0
        self.vain_lives = 1 if self._has_risen(achieved) else self.vain_lives + 1
        self._achieved = achieved or 0
        if not self.short_lives and self.vain_lives <= 1:
            self._delays = Pauses(FIRST_DELAY_S, LONGEST_DELAY_S)
            return 0.0
        return self._delays.take()

    def vain_until(self, achieved: int) -> int:
        """Return how many lives have been in vain so far: none if anything was achieved since the last end."""
        return 0 if self._has_risen(achieved) else self.vain_lives

    def _has_risen(self, achieved: int | None) -> bool:
        return achieved is None or achieved > self._achieved

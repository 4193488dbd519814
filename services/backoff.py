"""How long to wait before something that keeps ending is started again."""

from dataclasses import dataclass

__all__ = ["Backoff"]

SHORT_LIFE_S = 10.0
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 30.0


@dataclass(slots=True)
class Backoff:
    """Delays that double while lives are short; a long life forgets them.

    Attributes
    ----------
    short_lives : int
        How many in a row have been short.
    """

    short_lives: int = 0

    def on_end(self, lived_s: float) -> float:
        """Return the seconds to wait after a life of this length."""
        if lived_s >= SHORT_LIFE_S:
            self.short_lives = 0
            return 0.0
        self.short_lives += 1
        return float(min(FIRST_DELAY_S * 2 ** (self.short_lives - 1), LONGEST_DELAY_S))

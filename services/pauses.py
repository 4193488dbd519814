"""Pauses between attempts at what fails: each is twice as long as the one before, up to a longest one."""

from dataclasses import dataclass

__all__ = ["Pauses"]


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

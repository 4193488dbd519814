"""The master's clock: it leaves out the time in which the master itself stood still.

Theory of operation.  A master that was stopped, moved to another machine, or held by its disk has heard nobody
meanwhile, whoever spoke.  It reads its clock several times a second, so whatever is much longer between two readings
was spent elsewhere; it is nobody's silence, and no lease, pause or limit runs on in it.
"""

from collections.abc import Callable

from edlz.services.process.contact import LONGEST_STEP_S

__all__ = ["AwakeClock"]


class AwakeClock:
    """A clock that never goes on by more than `LONGEST_STEP_S` from one reading to the next.

    Parameters
    ----------
    clock : callable
        Returns seconds that never fall.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._read_s = clock()
        self._left_out_s = self._untold_s = 0.0

    def __call__(self) -> float:
        now = self._clock()
        excess_s = max(0.0, now - self._read_s - LONGEST_STEP_S)
        self._read_s = now
        self._left_out_s += excess_s
        self._untold_s += excess_s
        return now - self._left_out_s

    def take_left_out(self) -> float:
        """Return the seconds left out since this was asked before."""
        untold_s, self._untold_s = self._untold_s, 0.0
        return untold_s

"""How long a worker's thread has been at one piece of work: what the master judges hangs by.

Theory of operation.  Pieces of one kind (a step, an evaluation task) take about as long as each other, other kinds
do not.  The first of a kind also loads libraries and compiles, so it counts as part of the start; those after it take
no longer, and may take as long.  A piece is over before anybody hears of it, so what is told at its end is never old.
"""

__all__ = ["Pace"]


class Pace:
    """Pieces of work, one after the other; told of in one thread, asked in another."""

    def __init__(self) -> None:
        self._present: tuple[str, float] | None = None  # what it is at, and since when
        self._longest_s: dict[str, float] = {}  # by kind

    def begin(self, kind: str, now: float) -> None:
        """A piece of work begins."""
        self._present = (kind, now)

    def end(self, now: float) -> None:
        """It has ended; whoever is to hear of it has not yet."""
        assert self._present is not None, "nothing has begun"
        kind, since_s = self._present
        self._present = None
        self._longest_s[kind] = max(self._longest_s.get(kind, 0.0), now - since_s)

    def told(self, now: float) -> tuple[float, float, bool]:
        """Return what the master is told.

        Returns
        -------
        busy_s : float
            How long the present piece of work has lasted; 0 if there is none.
        longest_s : float
            The longest of its kind before it; 0 if there is none.
        is_starting : bool
            Whether it is the first of its kind.
        """
        present = self._present
        if present is None:
            return 0.0, 0.0, False
        kind, since_s = present
        busy_s = max(0.0, now - since_s)  # it may have begun after the clock was read
        return busy_s, self._longest_s.get(kind, 0.0), kind not in self._longest_s

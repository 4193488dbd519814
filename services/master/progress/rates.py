"""How fast a count rises, from what is heard of it now and then.

Theory of operation.  A count is heard of in steps: minibatches are applied whole, and statuses come once a second.
So a rate is taken from one rise to another, over what has risen between the two: neither how the steps fall into a
window nor what stood still before the first of them (processes that start, graphs that are traced) falsifies it.
When the next rise is late, the rate sinks as if it came just now.  A count of another life (a partition that went
back to a snapshot, a master that has just begun) is not compared with the one before: `restart` forgets both.
"""

from collections import deque

__all__ = ["Rate"]

FEWEST_RISES = 3  # are looked at, though steps are slower than the window
SHORTEST_SPAN_S = 1.0  # what has risen twice in less time says nothing yet
LATE_STEPS = 3  # rises that did not come: it stands still


class Rate:
    """The rate of one count.

    Parameters
    ----------
    window_s : float
        Over which time the mean is taken.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._count: float | None = None  # as heard last
        self._rises: deque[tuple[float, float]] = deque()  # (time, count) in the order of both

    def restart(self) -> None:
        """What is heard next is of another life."""
        self._count = None
        self._rises.clear()

    def note(self, count: float, now: float) -> None:
        """Take the count as it is now; one that falls without a restart counts as unchanged."""
        if self._count is None:
            self._count = count
        if count <= self._count:
            return
        self._count = count
        if self._rises and self._rises[-1][0] >= now:
            self._rises.pop()
        self._rises.append((now, count))
        while len(self._rises) > FEWEST_RISES and self._rises[1][0] <= now - self._window_s:
            self._rises.popleft()

    @property
    def span_s(self) -> float:
        """Over how many seconds it has been measured."""
        return self._rises[-1][0] - self._rises[0][0] if self._rises else 0.0

    def per_s(self, now: float) -> float:
        """Return the rate; 0 as long as it is not known, or when nothing has risen for long."""
        if self.span_s < SHORTEST_SPAN_S:
            return 0.0
        (first_s, first), (last_s, last) = self._rises[0], self._rises[-1]
        risen, steps = last - first, len(self._rises) - 1
        step_s = self.span_s / steps
        if now - last_s > max(self._window_s, LATE_STEPS * step_s):
            return 0.0
        return min(risen / (last_s - first_s), (risen + risen / steps) / max(now - first_s, step_s))

"""When a worker sends its next status: at once after a change, a heartbeat after the last one, never two at a time."""

__all__ = ["ASK_AGAIN_S", "HEARTBEAT_S", "Heartbeat"]

HEARTBEAT_S = 1.0
NEAR_HEARTBEAT_S = 0.2  # of a member of a group that waits for others
ASK_AGAIN_S = 0.2  # a worker without work asks again this often, if it is answered at once


class Heartbeat:
    """The statuses of one life.

    Attributes
    ----------
    count : int
        How many have been sent.
    was_idle : bool
        Whether the worker had nothing in hand when it sent the last one.
    """

    def __init__(self) -> None:
        self.count = 0
        self.was_idle = False
        self._is_under_way = False
        self._next_s = 0.0

    def begin(self, now: float, *, is_idle: bool) -> bool:
        """Return whether a status goes now; not while one is under way: its answer will be followed by another."""
        if self._is_under_way:
            self._next_s = now
            return False
        self.count, self._is_under_way, self._next_s = self.count + 1, True, now + HEARTBEAT_S
        self.was_idle = is_idle
        return True

    def on_answer(self) -> None:
        self._is_under_way = False

    def is_due(self, now: float, *, has_room: bool, is_near: bool) -> bool:
        """Whether it is time for a status: a heartbeat after the last one, or sooner.

        Parameters
        ----------
        has_room : bool
            Whether the worker wants work.
        is_near : bool
            Whether it is a member of a group that waits for others.
        """
        due_s = self._asks_again_s if has_room else self._next_s
        if is_near:
            due_s += NEAR_HEARTBEAT_S - HEARTBEAT_S
        return not self._is_under_way and now >= due_s

    def goes_on(self, now: float, *, is_idle: bool) -> bool:
        """Whether an answer is followed by a status at once, to somebody idle also if what was answered was a report."""
        if now >= self._next_s:
            return True
        return is_idle and (not self.was_idle or now >= self._asks_again_s)

    @property
    def _asks_again_s(self) -> float:
        return self._next_s - HEARTBEAT_S + ASK_AGAIN_S

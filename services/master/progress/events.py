"""What has happened in a job, for display: the newest events, with those of earlier masters."""

from collections import deque
from collections.abc import Iterable

from edlz.services.protocol.job_status import EventView, events_before

__all__ = ["Events"]

MOST = 200
KEEP_S, KEEP_AGAIN_S = 1.0, 30.0  # between two entries of the journal; and where its disk is full


class Events:
    """The newest events, and which of them the journal does not have yet.

    Parameters
    ----------
    term : int
        Of this master: its events have greater numbers than those of earlier ones.
    earlier : iterable of EventView
        Those that the journal has.
    """

    def __init__(self, term: int, earlier: Iterable[EventView]) -> None:
        self._events = deque(earlier, maxlen=MOST)
        self._count = self._kept_count = events_before(term)
        self._due_s = 0.0

    def add(self, kind: str, text: str, at: float) -> None:
        """Something has happened; `at`: seconds since the epoch."""
        self._count += 1
        self._events.append(EventView(seq=self._count, at=at, kind=kind, text=text))

    def since(self, seq: int) -> tuple[EventView, ...]:
        """Return those after this number."""
        return tuple(event for event in self._events if event.seq > seq)

    # -- journalling

    @property
    def to_keep(self) -> tuple[EventView, ...] | None:
        """What the journal should have of them; None if it has it."""
        return tuple(self._events) if self._count > self._kept_count else None

    def due(self, now: float) -> tuple[EventView, ...] | None:
        """Return what should be journalled now, though there is nothing else to journal."""
        return self.to_keep if now >= self._due_s else None

    def on_kept(self, events: tuple[EventView, ...], now: float) -> None:
        """The journal has these."""
        self._kept_count, self._due_s = events[-1].seq, now + KEEP_S

    def put_off(self, now: float) -> None:
        """The journal has no room for them."""
        self._due_s = now + KEEP_AGAIN_S

"""When one partition writes recovery snapshots: one at a time, since each holds memory."""

from edlz.services.parameters.store import Store
from edlz.services.protocol.messages import Identity
from edlz.services.ps.core.instructions import Write

__all__ = ["RecoverySnapshots"]


class RecoverySnapshots:
    """The recovery snapshots of one partition's life."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._is_being_written = False

    def restart(self, now: float) -> None:
        """Count the time from now on: the state has just come from the disk."""
        self._last_s = now

    def is_due(self, every_s: float, now: float) -> bool:
        return bool(every_s) and not self._is_being_written and now - self._last_s > every_s

    def take(self, store: Store, life: Identity, now: float) -> list[Write]:
        """Have the state as it is now written, unless one is being written: the next one is due soon."""
        self._last_s = now
        if self._is_being_written:
            return []
        self._is_being_written = True
        return [Write("snapshot", store.capture(life))]

    def on_over(self) -> None:
        """The one that was being written is, or never will be."""
        self._is_being_written = False

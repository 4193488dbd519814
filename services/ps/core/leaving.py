"""The core of how a partition that is told to end leaves: with its state saved, if that can be had in time.

Theory of operation.  What a partition alone has saved helps nobody in synchronous mode: all go back to what all
have.  So the leaving one tells the master, and gives out no parameters beyond the next version: no partition can
commit another step then, and all come to stand at one version.  The master orders a snapshot exactly there; when
all have it, its orders say so by `discard_below`, and the partition goes.  In asynchronous mode it takes no more
pushes, writes its own state, and goes; so does in synchronous mode who hears nothing of the master: where all of a
job is told to end, the others may stand at the same version.  Whatever happens, it goes before its grace is over: then the job goes back
as far as after a loss.  PROTOCOL: section 7.
"""

from edlz.services.protocol.messages import Identity, PartitionOrders
from edlz.services.ps.core.instructions import Exit

__all__ = ["ENDED", "Leaving", "left"]

ENDED = 143  # as if the signal had ended it
SILENT_S = 5.0  # a master that says nothing for so long will not have anybody cut


def left(reason: str) -> list[Exit]:
    """Go now."""
    return [Exit(f"told to end; {reason}", ENDED)]


class Leaving:
    """Whether one partition is about to end, and what it waits for.

    Attributes
    ----------
    is_under_way : bool
        It has been told to end, and waits until its state is saved.
    """

    def __init__(self) -> None:
        self.is_under_way = False
        self._is_sync = True
        self._until_s = self._heard_s = 0.0

    def begin(self, grace_s: float, now: float, *, is_sync: bool) -> None:
        """It is told to end, and will be killed when its grace is over."""
        self.is_under_way, self._is_sync = True, is_sync
        self._until_s, self._heard_s = now + grace_s, now

    def on_tick(self, now: float) -> list[Exit]:
        """Go when there is no time left."""
        if self.is_under_way and now >= self._until_s:
            return left("what came last could not be saved in time")
        return []

    def is_forsaken(self, now: float) -> bool:
        """Whether nobody is there who could have the others cut: what this partition saves by itself is the most."""
        return self.is_under_way and self._is_sync and now - self._heard_s >= SILENT_S

    def on_orders(
        self, orders: PartitionOrders, era: Identity | None, version: int, now: float
    ) -> list[Exit]:
        """Sync: go if all partitions have what this one has, or it cannot be kept any more."""
        self._heard_s = now
        if not (self.is_under_way and self._is_sync):
            return []
        is_newer = orders.era is not None and (era is None or orders.era > era)
        if is_newer or orders.restore is not None:
            return left("the job goes back already, for another loss")
        return left(f"v{version} is saved everywhere") if orders.discard_below >= version else []

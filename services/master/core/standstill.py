"""The core that sees when a job from which a partition leaves has come to stand, so that a cut there is of use.

Theory of operation.  That all partitions said the same version last does not mean that they stand there: workers may
compute from it, and all commit another step before the order to cut arrives.  A cut ordered too early is in vain, and
while it is written no other one is.  Nothing moves any more once all are at the *last* version of the leaving one, the
one after that at which it was told to end: nobody gets parameters of it.  Else nobody may be at work, or a step takes
long: then all must have said the same version for QUIET_S, counted from what they say since somebody leaves.
"""

from collections.abc import Sequence

from edlz.services.protocol.messages import Identity, PartitionStatus

__all__ = ["QUIET_S", "Standstill"]

QUIET_S = 0.4  # two heartbeats of a partition that hurries


class Standstill:
    """Where the partitions stand while one of them leaves; synchronous mode.

    Attributes
    ----------
    version : int or None
        Where all stand, as far as can be known; None while they may move, or nobody leaves.
    """

    def __init__(self) -> None:
        self.version: int | None = None
        self._first: dict[tuple[int, Identity | None], int] = {}  # leaving ones -> the version they had then
        self._stood: dict[int, tuple[int, float, float]] = {}  # version, said first and last at

    def on_status(self, index: int, statuses: Sequence[PartitionStatus], now: float) -> None:
        """Take in that a partition has said something; `statuses` are the newest ones of all."""
        leaving = [status for status in statuses if status.is_leaving]
        if not leaving:
            self.version = None
            self._first, self._stood = {}, {}
            return
        for status in leaving:
            self._first.setdefault((status.partition, status.incarnation), status.version)
        said = next(status.version for status in statuses if status.partition == index)
        version, first_s, _ = self._stood.get(index, (-1, now, now))
        self._stood[index] = (said, first_s if said == version else now, now)
        versions = {status.version for status in statuses}
        is_last = any(
            status.version > self._first[status.partition, status.incarnation] for status in leaving
        )
        is_known = len(versions) == 1 and (is_last or self._are_quiet(statuses))
        self.version = versions.pop() if is_known else None

    def _are_quiet(self, statuses: Sequence[PartitionStatus]) -> bool:
        """Whether all have said what they say now for long enough."""
        stood = (self._stood.get(status.partition) for status in statuses)
        return all(each is not None and each[2] - each[1] >= QUIET_S for each in stood)

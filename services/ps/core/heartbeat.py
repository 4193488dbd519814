"""When a partition tells the master where it stands.

Each heartbeat, which is shorter while somebody waits for this partition; and at once at versions at which the master
has something to begin.
"""

from collections.abc import Iterable

from edlz.services.parameters.store import Store

__all__ = ["HEARTBEAT_S", "NEAR_HEARTBEAT_S", "Heartbeat"]

HEARTBEAT_S = 1.0
NEAR_HEARTBEAT_S = 0.02  # while a checkpoint is cut in asynchronous mode, pushes wait
HURRIED_HEARTBEAT_S = 0.2  # while a partition leaves


class Heartbeat:
    """The statuses of one partition."""

    def __init__(self) -> None:
        self.count = 0  # of statuses
        self._next_s = 0.0
        self._version = 0  # that was told last
        self._milestones: tuple[int, ...] = ()
        self.has_milestones = False  # asked at each push
        self._hurries = False  # another partition leaves
        self._fence = 0  # sync: no task from this one on is leased; 0: nobody waits for those before
        self._is_at_fence = False  # and the master has been told that those before are finished

    def is_due(self, now: float) -> bool:
        return now >= self._next_s

    def note_sent(self, version: int, now: float, *, is_near: bool, is_leaving: bool) -> None:
        """A status with this version goes out; the next one is due sooner if a cut is near, or this one leaves."""
        self.count += 1
        self._version = version
        is_waited_for = self._hurries or is_leaving or self._is_at_fence
        later_s = HURRIED_HEARTBEAT_S if is_waited_for else HEARTBEAT_S
        self._next_s = now + (NEAR_HEARTBEAT_S if is_near else later_s)

    def send_at_once(self, now: float) -> None:
        self._next_s = now

    def hurry(self, now: float, *, hurries: bool) -> None:
        """The master wants to hear often, or not any more."""
        if hurries and not self._hurries:
            self._next_s = min(self._next_s, now + HURRIED_HEARTBEAT_S)
        self._hurries = hurries

    @property
    def can_wait(self) -> bool:
        """Whether all that it waits for is the master's word: that may come when there is news."""
        return self._is_at_fence and not self._hurries

    # -- what is told at once

    def begin_life(self, milestones: Iterable[int]) -> None:
        """The state is another one; every so many versions the master has something to begin, 0: never."""
        self._milestones = tuple(every for every in milestones if every)
        self.has_milestones = bool(self._milestones)
        self._is_at_fence = False

    def set_fence(self, fence: int, first_unfinished: int, now: float) -> None:
        """The master waits until all tasks before `fence` are finished; 0: for none."""
        if fence == self._fence:
            return
        self._fence = fence
        self._is_at_fence = 0 < fence <= first_unfinished
        if self._is_at_fence:
            self._next_s = now  # what was told last may have been of before

    def is_at_milestone(self, store: Store) -> bool:
        """Whether the master is to hear of this version at once."""
        before = self._version
        is_passed = any(store.version // every > before // every for every in self._milestones)
        if self._fence and not self._is_at_fence:
            self._is_at_fence = store.ledger.finished.first_missing() >= self._fence
            is_passed = is_passed or self._is_at_fence
        return is_passed

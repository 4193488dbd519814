"""When those who are ready join a group that trains: several together, and not again and again if they die at once.

Theory of operation.  A join costs the group a transfer, sometimes a step.  Who dies within a few steps of joining has cost that
for nothing, and so will perhaps whoever takes its place, on the same machine or with the same fault.  The second time in
a row the group waits longer before it takes somebody in, and twice as long each time; a member that stays ends that.
"""

from collections.abc import Collection, Mapping

from edlz.services.protocol.messages import Identity

__all__ = ["EARLY_STEPS", "SETTLE_S", "Joins"]

SETTLE_S = 1.0  # before a join: several come together
EARLY_STEPS = 10  # who dies within so many of joining has died early
MOST_S = 60.0


class Joins:
    """The joins of one job's group."""

    def __init__(self) -> None:
        self._joined: dict[Identity, int] = {}  # the version at which members that are new have joined
        self._early = 0  # deaths in a row soon after a join

    @property
    def settle_s(self) -> float:
        """For how long a worker is ready before it joins a group that trains."""
        return float(min(MOST_S, SETTLE_S * 2 ** max(0, self._early - 1)))

    def form(self, new: Collection[Identity], version: int) -> None:
        """These workers have joined at a version."""
        self._joined |= dict.fromkeys(new, version)

    def advance(self, versions: Mapping[Identity, int]) -> None:
        """Members have come to these versions: who has stayed is not new any more."""
        for who, version in versions.items():
            if version - self._joined.get(who, version) >= EARLY_STEPS:
                del self._joined[who]
                self._early = 0

    def lose(self, gone: Collection[Identity]) -> None:
        """The group has lost these."""
        early = [who for who in gone if self._joined.pop(who, None) is not None]
        self._early += bool(early)

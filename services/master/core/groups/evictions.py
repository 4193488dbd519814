"""Who has to leave a group although it speaks, and whether another worker may take its place.

Theory of operation.  A member leaves since it cannot reach another one (`links`), or since it hangs (`hangs`).  Broken links are
remembered: of two members one may be unreachable for all who take the other's place.  So are the hosts of the two: the
second time in a row that two hosts cannot reach each other it is the network between them, and one more worker there would
be thrown out like those before.  A step that members of both hosts have taken together ends the row.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from edlz.services.master.core.groups.hangs import Hangs
from edlz.services.master.core.groups.links import Claim, Claims, Link, cut_off
from edlz.services.protocol.messages import Identity, Member, MemberStatus, SnapshotName

__all__ = ["IN_A_ROW", "Eviction", "Evictions", "host_of"]

IN_A_ROW = (
    2  # evictions, for one pair of hosts, behind the last of which nobody is started in the place of who left
)


@dataclass(frozen=True)
class Eviction:
    """Somebody leaves, and why."""

    who: Identity
    reason: str
    is_hung: bool = False
    is_replaced: bool = True


class Evictions:
    """The evictions of one job.

    Parameters
    ----------
    hang_s : float
        Seconds without progress until a member counts as hung.
    """

    def __init__(self, hang_s: float) -> None:
        self._hangs = Hangs(hang_s)
        self._claims = Claims()
        self._broken: set[Link] = set()  # for which somebody was evicted
        self._in_a_row: dict[frozenset[str], int] = {}  # by pair of hosts

    @property
    def step_s(self) -> float:
        """How long a step takes; 0 as long as none is known of."""
        return self._hangs.step_s

    def note(self, who: Identity, status: MemberStatus, now: float) -> None:
        """A worker says where it stands."""
        self._hangs.note(who, status, now)
        self._claims.note(who, status, now)

    def forget(self, who: Identity, gone: Collection[Identity]) -> None:
        """A worker has ended, like all that are `gone`; links between those say nothing any more."""
        self._hangs.forget(who)
        self._claims.forget(who)
        self._broken = {link for link in self._broken if not link.issubset(gone)}

    def advance(self, group: Collection[Member], source: SnapshotName, reached: SnapshotName) -> None:
        """All members have come to a state, from the one that they have begun with."""
        if not self._in_a_row or reached <= source:
            return
        hosts = [host_of(member) for member in group]
        for pair in list(self._in_a_row):
            if pair.issubset(hosts) and (len(pair) > 1 or sum(hosts.count(host) for host in pair) > 1):
                del self._in_a_row[pair]

    def due(
        self,
        statuses: Mapping[Identity, MemberStatus],
        members: Mapping[Identity, Member],
        generation: Identity,
        now: float,
    ) -> Eviction | None:
        """Return who leaves now; None if nobody does.

        Parameters
        ----------
        statuses, members : mapping
            Of the group.
        generation : Identity
        """

        def is_old(who: Identity, other: Identity, claim: Claim) -> bool:
            return self._claims.is_old(who, other, claim, now)

        cut = cut_off(statuses, generation, is_old, self._broken)
        if cut is not None:
            who, other = cut
            self._broken.add(frozenset(cut))
            reason = f"worker-{members[who].worker} cannot reach worker-{members[other].worker}"
            return self._counted(who, reason, (members[who], members[other]))
        hung = self._hangs.first(statuses, generation, now)
        if hung is None:
            return None
        who, waits_s = hung
        text = f"worker-{members[who].worker} hangs: no progress for {waits_s:.0f}s while others wait for it"
        return Eviction(who, text, is_hung=True)

    def _counted(self, who: Identity, reason: str, pair: tuple[Member, Member]) -> Eviction:
        hosts = frozenset(map(host_of, pair))
        self._in_a_row[hosts] = self._in_a_row.get(hosts, 0) + 1
        if self._in_a_row[hosts] < IN_A_ROW:
            return Eviction(who, reason)
        where = " and ".join(sorted(hosts)) if all(hosts) else "this machine"
        return Eviction(who, f"{reason}, like one before it ({where})", is_replaced=False)


def host_of(member: Member) -> str:
    """Return the host at which a member listens; nothing for a path on the master's own machine."""
    scheme, _, rest = member.endpoint.partition("://")
    return rest.rpartition(":")[0] if scheme == "tcp" else ""

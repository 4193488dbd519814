"""Which members cannot reach each other, and who leaves for that.

Theory of operation.  A member tells of whom nothing that is due has come for long.  That alone says little: it may wait
for somebody who waits for a slow third.  The link is broken if the other one has sent what this one lacks (its part, or
its mean), and still it has not come.  Who is in broken links with two or more members leaves, those of before included: of
two members one may be unreachable for all who take the other's place.  Of a single pair the younger one leaves; one that
never got the state leaves itself.  One that still computes is slow, not cut off.

What was sent only now is on its way, however long it has been waited for.  So a link is waited for from the later of
both: since the other one says that it has sent (`Claims`).  Nor can anybody who was not heard of for seconds, one that
stood still or that the master was cut off from, have sent or taken anything in before it is heard again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Literal

from edlz.services.protocol.groups import LINK_WAIT_S
from edlz.services.protocol.messages import Identity, MemberStatus

__all__ = ["Claim", "Claims", "Link", "cut_off"]

GAP_S = 3.0  # between statuses of somebody who stands still, or is not reached

_BEHIND_LAST = ("sealing", "sealed")  # the last comparison of states is a step that makes no new version

Link = frozenset[Identity]
Claim = Literal[
    "state", "part", "mean", "step"
]  # it has the state, has sent its part, has a mean, has taken the step
IsOld = Callable[[Identity, Identity, Claim], bool]  # who waits, for whom, and what that one says


class Claims:
    """Since when members say, without a gap, what links to them are judged by."""

    def __init__(self) -> None:
        self._heard: dict[Identity, tuple[float, float]] = {}  # when last, and since when without a gap
        self._said: dict[tuple[Identity, Claim], tuple[object, float]] = {}  # of what, and since when

    def note(self, who: Identity, status: MemberStatus, now: float) -> None:
        """A member says where it stands."""
        last_s, since_s = self._heard.get(who, (now, now))
        self._heard[who] = now, now if now - last_s > GAP_S else since_s
        name = status.generation, status.name
        claims: dict[Claim, object] = {
            "state": status.generation,
            "part": (*name, status.phase == "staged"),
            "mean": (*name, status.has_mean),
            "step": (*name, status.phase in _BEHIND_LAST),
        }
        for claim, what in claims.items():
            if self._said.get((who, claim), (None, 0.0))[0] != what:
                self._said[who, claim] = what, now

    def forget(self, who: Identity) -> None:
        """A worker has ended."""
        self._heard.pop(who, None)
        self._said = {key: said for key, said in self._said.items() if key[0] != who}

    def is_old(self, who: Identity, other: Identity, claim: Claim, now: float) -> bool:
        """Whether what the other one says was true for so long that `who` would have heard of it by now."""
        heard = self._heard[who], self._heard[other]
        since_s = max(self._said[other, claim][1], *(since_s for _, since_s in heard))
        is_silent = any(now - last_s > GAP_S for last_s, _ in heard)
        return not is_silent and now - since_s > LINK_WAIT_S


def cut_off(
    statuses: Mapping[Identity, MemberStatus],
    generation: Identity,
    is_old: IsOld,
    before: Collection[Link] = (),
) -> tuple[Identity, Identity] | None:
    """Return who leaves the group, and whom it cannot reach; None if no link is broken.

    Parameters
    ----------
    statuses : mapping
        The newest of each member.
    generation : Identity
        Of the group; statuses of others say nothing.
    is_old : callable
        Whether what somebody says was true for long; see `Claims.is_old`.
    before : collection of Link
        Those that were broken before.
    """
    broken: dict[Link, Identity] = {}  # who of the two leaves, if nobody is in more of them
    for who, status in sorted(statuses.items()):
        if status.generation == generation:
            for other, leaves, claim in _broken_links(who, status, statuses, generation):
                if is_old(who, other, claim):
                    broken.setdefault(frozenset((who, other)), leaves)
    if not broken:
        return None
    links = Counter(member for pair in {*broken, *before} for member in pair)
    members = {member for pair in broken for member in pair}
    most = max(links[member] for member in members)
    pair, leaves = next(iter(broken.items()))
    if most > 1:
        leaves = max(member for member in members if links[member] == most)
        pair = next(found for found in broken if leaves in found)
    other = next(member for member in pair if member != leaves)
    return leaves, other


def _broken_links(
    who: Identity, status: MemberStatus, statuses: Mapping[Identity, MemberStatus], generation: Identity
) -> Iterator[tuple[Identity, Identity, Claim]]:
    """Yield whom a member cannot reach, who of the two leaves if nobody else is in broken links, and what shows it."""
    for other in sorted({*status.lacks, *status.unanswered} - {who}):
        theirs = statuses.get(other)
        if theirs is None or theirs.generation != generation:
            continue
        if not status.members:  # it never got the state that the other one has
            yield other, who, "state"
            continue
        is_equal, youngest = theirs.name == status.name, max(who, other)
        if other in status.lacks and is_equal and theirs.phase == "staged":
            yield other, youngest, "part"
        if other in status.unanswered and is_equal and theirs.has_mean:
            yield other, youngest, "mean"
        is_ahead = theirs.name > status.name or (is_equal and theirs.phase in _BEHIND_LAST)
        if other in status.unanswered and is_ahead:
            yield other, youngest, "step"

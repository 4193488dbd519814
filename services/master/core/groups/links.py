"""Which members cannot reach each other, and who leaves for that.

Theory of operation.  A member tells of whom nothing that is due has come for long.  That alone says little: it may wait
for somebody who waits for a slow third.  The link is broken if the other one has sent what this one lacks (its part, or
its mean), and still it has not come.  Who is in broken links with two or more members leaves, those of before included: of
two members one may be unreachable for all who take the other's place.  Of a single pair the younger one leaves; one that
never got the state leaves itself.  One that still computes is slow, not cut off.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from edlz.services.protocol.messages import Identity, MemberStatus

__all__ = ["Link", "cut_off"]

Link = frozenset[Identity]


def cut_off(
    statuses: Mapping[Identity, MemberStatus],
    generation: Identity,
    before: Collection[Link] = (),
) -> tuple[Identity, Identity] | None:
    """Return who leaves the group, and whom it cannot reach; None if no link is broken.

    Parameters
    ----------
    statuses : mapping
        The newest of each member.
    generation : Identity
        Of the group; statuses of others say nothing.
    before : collection of Link
        Those that were broken before.
    """
    broken: dict[Link, Identity] = {}  # who of the two leaves, if nobody is in more of them
    for who, status in sorted(statuses.items()):
        if status.generation == generation:
            for other, leaves in _broken_links(who, status, statuses, generation):
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
) -> Iterator[tuple[Identity, Identity]]:
    """Yield whom a member cannot reach, and who of the two leaves if nobody else is in broken links."""
    for other in sorted({*status.lacks, *status.unanswered} - {who}):
        theirs = statuses.get(other)
        if theirs is None or theirs.generation != generation:
            continue
        if not status.members:  # it never got the state that the other one has
            yield other, who
            continue
        is_equal = theirs.name == status.name
        has_sent = other in status.lacks and is_equal and theirs.phase == "staged"
        has_answered = other in status.unanswered and (
            theirs.name > status.name or (is_equal and theirs.has_mean)
        )
        if has_sent or has_answered:
            yield other, max(who, other)

"""What is told of a member whose state is not what the other members have."""

from collections.abc import Collection, Mapping

from edlz.services.master.core.groups.evictions import host_of
from edlz.services.protocol.messages import Identity, Member, MemberStatus, SnapshotName

__all__ = ["damage_text", "damage_texts", "doubt_text"]

_ADVICE = "A machine that computes or remembers wrongly should be replaced."


def damage_text(
    who: Identity, status: MemberStatus, members: Mapping[Identity, Member], *, has_taken_over: bool = False
) -> str:
    """Return the warning that names a damaged member, one that is not, and where they listen.

    Parameters
    ----------
    who : Identity
        The damaged one.
    status : MemberStatus
        What it says.
    members : mapping
        All that were ever heard.
    has_taken_over : bool
        Whether it has that state from another member: then its machine is not to blame.
    """
    damaged = _called(members.get(who))
    right = _called(members.get(status.differs_from or who))
    if has_taken_over:
        return f"{damaged} has taken over another state of v{status.name[1]} than {right} has, and takes that one over."
    text = f"{damaged} has another state of v{status.name[1]} than {right}, and takes that one over."
    return f"{text}  {_ADVICE}"


def damage_texts(
    statuses: Mapping[Identity, MemberStatus],
    members: Mapping[Identity, Member],
    names: Mapping[Identity, SnapshotName],
    source: SnapshotName,
    holders: Collection[Identity],
) -> list[str]:
    """Return the warnings of damaged members that take another state over.

    Parameters
    ----------
    statuses, members
        What those say who are about to be a group; all that were ever heard.
    names : mapping
        Who has which state to go on from.
    source : SnapshotName
        Of the group before, which these `holders` had.
    """
    best, out = max(names.values()), list[str]()
    for who, status in statuses.items():
        if status.differs_from is None or names.get(who) == best:
            continue
        has_taken_over = status.name == source and bool(holders) and who not in holders
        out.append(damage_text(who, status, members, has_taken_over=has_taken_over))
    return out


def doubt_text(
    statuses: Mapping[Identity, MemberStatus], members: Mapping[Identity, Member], back_to: SnapshotName
) -> str:
    """Return the warning that members' states are in doubt, so that all of them go back to one that was the same on all."""
    damaged = [(who, status) for who, status in statuses.items() if status.differs_from is not None]
    where = f"v{back_to[1]} was the same on all, and is gone on from."
    if not damaged:  # whoever was damaged has ended since
        return f"A member had another state than the others.  {where}"
    who, status = damaged[0]
    right = _called(members.get(status.differs_from or who))
    text = f"{_called(members.get(who))} has another state of v{status.name[1]} than {right}; {where}"
    return f"{text}  {_ADVICE}"


def _called(member: Member | None) -> str:
    if member is None:  # an earlier master knew it
        return "another worker"
    host = host_of(member)
    return f"worker-{member.worker}{f' at {host}' if host else ''}"

"""What is told of a member whose state is not what the other members have."""

from collections.abc import Mapping

from edlz.services.master.core.groups.evictions import host_of
from edlz.services.protocol.messages import Identity, Member, MemberStatus

__all__ = ["damage_text"]


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
    return f"{text}  A machine that computes or remembers wrongly should be replaced."


def _called(member: Member | None) -> str:
    if member is None:  # an earlier master knew it
        return "another worker"
    host = host_of(member)
    return f"worker-{member.worker}{f' at {host}' if host else ''}"

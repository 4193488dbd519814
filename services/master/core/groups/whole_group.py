"""Which group a restarted master goes on with: the newest one that anybody tells of, if all of its members say that they are in it."""

from collections.abc import Collection, Mapping

from edlz.services.protocol.messages import Identity, MemberStatus

__all__ = ["whole_group"]


def whole_group(
    statuses: Mapping[Identity, MemberStatus], live: Collection[Identity]
) -> tuple[Identity, tuple[Identity, ...]] | None:
    """Return generation and members of that group; None if it is not whole, or there is none.

    Parameters
    ----------
    statuses : mapping of Identity to MemberStatus
        What workers have said to this master.
    live : collection of Identity
        Those of them that are there.
    """
    groups = {(status.generation, status.members) for status in statuses.values() if status.members}
    if not groups:
        return None
    newest = max(groups)
    said = (statuses.get(member) for member in newest[1] if member in live)
    are_in = [status for status in said if status and (status.generation, status.members) == newest]
    return newest if len(are_in) == len(newest[1]) else None

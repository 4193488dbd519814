"""Whether the members of a group have one state, by the checksums of their own that they send with a step.

Theory of operation.  Members that have made the same steps are equal, unless a machine computes wrongly or its memory is
damaged.  Then the owners' answers say so to everybody, and nobody takes the step: what the damaged one has computed for it
counts for nothing.  Right is what most members have, and of two states that equally many have that of the lowest rank.
Whoever has another one takes the state over anew, in the next generation.

Who has just taken the state over has it from a holder, and would say again what a damaged one says.  So members compare their
states before the first step of a generation in which somebody took it over, and only its holders vote.
"""

from collections import Counter
from collections.abc import Collection, Sequence

__all__ = ["CHECK_STEPS", "differs_from"]

CHECK_STEPS = 100  # between two checks


def differs_from(checksums: Sequence[str], rank: int, voters: Collection[int] = ()) -> int | None:
    """Return the rank of a voter whose state is right and another one than that of `rank`; None if that one is right.

    Parameters
    ----------
    checksums : sequence of str
        Of the members' states, by rank.
    voters : collection of int
        The ranks whose states count; if none are named, all.
    """
    ranks = sorted(voters) or range(len(checksums))
    votes = Counter(checksums[voter] for voter in ranks)  # in the order of ranks
    right = max(votes, key=votes.__getitem__)  # of equals the first one
    return None if checksums[rank] == right else next(voter for voter in ranks if checksums[voter] == right)

"""Whether the members of a group have one state, by the checksums of their own that they send with a step.

Theory of operation.  Members that have made the same steps are equal, unless a machine computes wrongly or its memory is
damaged.  Then the owners' answers say so to everybody, and nobody takes the step: what the damaged one has computed for it
counts for nothing.  Right is what most members have, and of two states that equally many have that of the lowest rank.
Whoever has another one takes the state over anew, in the next generation.
"""

from collections import Counter
from collections.abc import Sequence

__all__ = ["CHECK_STEPS", "differs_from"]

CHECK_STEPS = 100  # between two checks


def differs_from(checksums: Sequence[str], rank: int) -> int | None:
    """Return the rank of a member whose state is right and another one than that of `rank`; None if that one is right.

    Parameters
    ----------
    checksums : sequence of str
        Of the members' states, by rank.
    """
    votes = Counter(checksums)  # in the order of ranks
    right = max(votes, key=votes.__getitem__)  # of equals the first one
    return None if checksums[rank] == right else checksums.index(right)

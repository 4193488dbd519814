"""Whether the members of a group have one state, by the checksums of their own that they send with a step.

Theory of operation.  Members that have made the same steps are equal, unless a machine computes wrongly or its memory is
damaged.  Then the owners' answers say so to everybody, and nobody takes the step: what the damaged one has computed for it
counts for nothing.  What it has computed since members were last found equal is in all their states, so these are *doubtful*:
the master has them go back to a state that is saved and was the same on all, and the steps behind it are taken again.  Only
where most members have one state that is not saved yet, and the one before it was compared too, nothing of the damage is in it.

Where there is nothing to go back to, right is what most members have, and of two states that equally many have that of the
lowest rank.  Whoever has another one takes the state over anew, in the next generation.

Who has just taken the state over has it from a holder, and would say again what a damaged one says.  So members compare their
states before the first step of a generation, and only those vote then that have not taken it over.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TypedDict

from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import Identity, Member, SnapshotName

__all__ = ["CHECK_STEPS", "Agreement", "differs_from", "is_doubtful"]

CHECK_STEPS = 100  # between two checks


class Told(TypedDict):
    """Fields of a `MemberStatus`."""

    agreed: SnapshotName
    differs_from: Identity | None
    is_doubtful: bool


class Agreement:
    """What one member knows of its state and the others'.

    Attributes
    ----------
    agreed : SnapshotName
        The newest state that all members of its group had.
    differs_from : Identity or None
        Who has the right state, while this one is damaged.
    is_doubtful : bool
        Whether states behind that one may have in them what a damaged member has computed.
    """

    def __init__(self) -> None:
        self.agreed: SnapshotName = BASE
        self.differs_from: Identity | None = None
        self.is_doubtful = False

    @property
    def told(self) -> Told:
        """What the master is told."""
        return {
            "agreed": self.agreed,
            "differs_from": self.differs_from,
            "is_doubtful": self.is_doubtful,
        }

    @property
    def is_in_doubt(self) -> bool:
        """Whether its state is not to be gone on from, unless the master says so."""
        return self.is_doubtful or self.differs_from is not None

    def compare(
        self,
        checksums: Sequence[str],
        name: SnapshotName,
        members: Sequence[Member],
        rank: int,
        voters: Collection[int],
        *,
        is_saved: bool,
    ) -> bool:
        """Return whether all members have the state with this name, as far as is known: then the step may be taken.

        Parameters
        ----------
        checksums : sequence of str
            Of all members, by rank; empty if they do not compare theirs.
        rank : int
            This member's.
        voters : collection of int
            As of `differs_from`.
        is_saved : bool
            Whether members write this state, or have.
        """
        if len(set(checksums)) > 1:
            found = differs_from(checksums, rank, voters)
            self.differs_from = None if found is None else members[found].incarnation
            self.is_doubtful = is_doubtful(
                checksums, voters, is_certain=not is_saved and name[1] <= self.agreed[1] + 1
            )
            return False
        if checksums or len(members) == 1:
            self.agreed = name
        return True

    def accept(self) -> None:
        """The master says that this state is to be gone on from, by all."""
        self.differs_from, self.is_doubtful = None, False

    def on_other_state(self, name: SnapshotName) -> None:
        """The member has another state than before: perhaps since others' are in doubt, which a later master hears from it."""
        self.differs_from = None
        if not self.is_doubtful:
            self.agreed = min(self.agreed, name)


def is_doubtful(checksums: Sequence[str], voters: Collection[int], *, is_certain: bool) -> bool:
    """Whether what a damaged member has computed is in all states, or nobody knows which one is damaged.

    Parameters
    ----------
    checksums, voters
        As of `differs_from`; not all equal.
    is_certain : bool
        Whether the state before was the same on all, and nothing of this one is saved.
    """
    ranks = voters or range(len(checksums))
    votes = Counter(checksums[voter] for voter in ranks)
    return len(votes) > 1 and not (is_certain and 2 * max(votes.values()) > len(ranks))


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

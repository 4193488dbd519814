"""The state that a new group goes on from: who has it, or who reads it from the disk.

Theory of operation.  It is the greatest name among those that have promised, or a durable state if that is greater.  A damaged
state is nobody's source.  Where what a damaged member has computed may be in all of them, the group goes back to the newest
state that is saved and was the same on all: the steps behind it are a function of it, so what was damaged once is gone.  To
a state that was gone back to before nobody goes back again, since a machine that is damaged for good would keep the job there
for ever: then the state of most members is taken.
"""

from collections.abc import Collection, Mapping

from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import Identity, MemberStatus, SnapshotName

__all__ = ["Sources", "is_before"]

Statuses = Mapping[Identity, MemberStatus]
Names = dict[Identity, SnapshotName]


class Sources:
    """The sources of one job's groups, under one master's term.

    Attributes
    ----------
    load : (Identity, SnapshotName) or None
        Who reads a durable state.
    certain : SnapshotName or None
        If the group that is gathered goes back, since members' states are in doubt: the newest state that was the same on all.
    """

    def __init__(self) -> None:
        self.load: tuple[Identity, SnapshotName] | None = None
        self.certain: SnapshotName | None = None
        self._agreed: SnapshotName | None = (
            None  # the same, from when a member is in doubt until a group is formed
        )
        self._back_to: SnapshotName = BASE  # up to here no state is gone back to again
        self._unreadable: set[tuple[Identity, SnapshotName]] = set()

    @property
    def goal(self) -> SnapshotName:
        """What a group that goes back goes back to."""
        return self._back_to if self.load is None else self.load[1]

    def begin(self) -> None:
        """A generation is gathered."""
        self.load = self.certain = None

    def end(self) -> None:
        """The group is formed."""
        self._agreed = None

    def note_unreadable(self, who: Identity, name: SnapshotName) -> None:
        """A worker cannot read a durable state."""
        self._unreadable.add((who, name))

    def find(
        self, candidates: tuple[Identity, ...], statuses: Statuses, durable: Collection[SnapshotName]
    ) -> Names | None:
        """Return who has which state to go on from; None while one of them reads a durable state.

        Parameters
        ----------
        candidates : tuple of Identity
            Who is to be in the group and has promised, the oldest first.
        durable : collection of SnapshotName
            What lies on the disk, whole.
        """
        doubtful = [statuses[who].agreed for who in candidates if statuses[who].is_doubtful]
        if doubtful:  # others may not have heard of it
            self._agreed = max([*doubtful, self._agreed or BASE])
        if self._agreed is not None:
            found = self._way_back(candidates, statuses, self._agreed, durable)
            if found is None or found:
                return found
        sound = {who: statuses[who].name for who in candidates if statuses[who].differs_from is None}
        if self._reads(candidates, max(sound.values(), default=BASE), durable):
            return None
        return sound or {who: statuses[who].name for who in candidates}

    def _way_back(
        self,
        candidates: tuple[Identity, ...],
        statuses: Statuses,
        agreed: SnapshotName,
        durable: Collection[SnapshotName],
    ) -> Names | None:
        """Return who has a state that was the same on all; None while one is read, nobody if there is none."""
        sure = {who: name for who in candidates if is_before(name := statuses[who].name, agreed)}
        best = max([self._back_to, *sure.values()])
        saved = [name for name in durable if is_before(name, agreed)]
        is_read = self._reads(candidates, best, saved)
        self.certain = agreed if is_read or best > self._back_to else None
        if is_read:
            return None
        self._back_to = best
        return {} if self.certain is None else sure

    def _reads(
        self, candidates: tuple[Identity, ...], best: SnapshotName, durable: Collection[SnapshotName]
    ) -> bool:
        """Have the oldest candidate that can read a durable state, if one is further than who is there."""
        for name in sorted((name for name in durable if name > best), reverse=True):
            able = [who for who in candidates if (who, name) not in self._unreadable]
            if not able:
                continue
            if self.load is None or self.load[1] != name or self.load[0] not in able:
                self.load = able[0], name
            return True
        return False


def is_before(name: SnapshotName, agreed: SnapshotName) -> bool:
    """Whether a state is of the history that has come to another one, or that one."""
    return name <= agreed and name[1] <= agreed[1]

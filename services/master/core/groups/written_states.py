"""Which states of a group lie whole on the disk, and which parts of others do.

Theory of operation.  Members tell of their newest parts in each status, so most is heard many times.  With the last part of a
state its manifest is due, once; what is whole already, as another master has left it perhaps, is not completed again.
Whose parts count is not decided here.  As much is remembered as members may still tell of, and as anybody would go back to.
"""

from collections.abc import Collection

from edlz.services.master.core.groups.events import PartFailed, WriteManifest
from edlz.services.master.core.groups.sources import is_before
from edlz.services.protocol.groups import DurableState
from edlz.services.protocol.messages import Identity, SnapshotName, WrittenPart

__all__ = ["KNOWN", "WrittenStates"]

KNOWN = 16  # states, the newest ones; a member tells of its newest four


class WrittenStates:
    """The states of one job, as far as its group has come to them or may go back to them.

    Parameters
    ----------
    durable : collection of (SnapshotName, bool)
        What lies on the disk, whole, and whether as a checkpoint.
    """

    def __init__(self, durable: Collection[DurableState] = ()) -> None:
        self._durable = set(durable)
        # Durable parts by rank, of each state and number of members; all of them: a manifest was asked for.
        self._parts: dict[tuple[DurableState, int], dict[int, WrittenPart]] = {}
        self._failures: dict[Identity, int] = {}  # the newest attempt of each member that has failed
        self._unsaved: set[SnapshotName] = set()  # no checkpoints; their manifests could not be written
        self._bound()

    @property
    def durable(self) -> tuple[SnapshotName, ...]:
        """The names of what is whole, in their order."""
        return tuple(sorted({name for name, _ in self._durable}))

    def has(self, name: SnapshotName, *, is_checkpoint: bool) -> bool:
        """Whether a state is whole: as a checkpoint, or among those to go on from."""
        return (name, is_checkpoint) in self._durable

    def is_checkpointed(self, name: SnapshotName) -> bool:
        """Whether a state is whole as a checkpoint, or all parts of it are there."""
        state = name, True
        are_there = (len(parts) == key[1] for key, parts in self._parts.items() if key[0] == state)
        return state in self._durable or any(are_there)

    def add(self, name: SnapshotName, *, is_checkpoint: bool) -> None:
        """A state is whole."""
        self._durable.add((name, is_checkpoint))
        if not is_checkpoint:
            self._unsaved.discard(name)
        self._bound()

    def note_unsaved(self, name: SnapshotName) -> None:
        """The manifest of a state that is no checkpoint could not be written."""
        self._unsaved.add(name)
        self._bound()

    def keep(self, certain: SnapshotName) -> None:
        """What was written behind a state, or by others, is not gone on from."""
        self._durable = {state for state in self._durable if is_before(state[0], certain)}

    def reopen(self, name: SnapshotName) -> None:
        """Have a state that could not be completed tried again, as soon as its members tell of their parts again."""
        if name in self._unsaved:
            self._unsaved.discard(name)
            for key in [key for key in self._parts if key[0] == (name, False)]:
                del self._parts[key]

    def take(self, who: Identity, part: WrittenPart) -> list[WriteManifest | PartFailed]:
        """A member tells of a part of a state that counts; with the last one the state is whole."""
        state = part.name, part.is_checkpoint
        if part.error:
            if part.attempt <= self._failures.get(who, -1):
                return []
            self._failures[who] = part.attempt
            return [PartFailed(who, part)]
        parts = self._parts.setdefault((state, part.count), {})
        if state in self._durable or part.rank in parts:
            return []
        parts[part.rank] = part
        self._bound()
        if len(parts) < part.count:
            return []
        in_order = tuple(parts[rank] for rank in sorted(parts))
        return [WriteManifest(part.name, part.count, part.is_checkpoint, in_order)]

    def forget(self, who: Identity) -> None:
        """A member has ended: it fails no more."""
        self._failures.pop(who, None)

    def _bound(self) -> None:
        """Forget the oldest of each."""
        for key in list(self._parts)[:-KNOWN]:
            del self._parts[key]
        self._durable = set(sorted(self._durable)[-KNOWN:])
        self._unsaved = set(sorted(self._unsaved)[-KNOWN:])

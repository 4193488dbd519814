"""The disk of a simulated all-reduce job: a folder for each version, of checkpoints and of states to go on from."""

from dataclasses import dataclass, field
from typing import Any

from edlz.services.protocol.groups import DurableState, number_of
from edlz.services.storage.state import State

__all__ = ["GroupDisk"]


@dataclass
class Folder:
    """Of one version: the newest parts by rank and number of members, and those that a manifest lists."""

    parts: dict[tuple[int, int], State] = field(default_factory=dict)
    manifest: list[State] | None = None


class GroupDisk:
    """What all members see.

    Attributes
    ----------
    again : int
        Parts that were written of checkpoints which were complete.
    """

    def __init__(self) -> None:
        self.again = 0
        self._folders: dict[tuple[bool, int], Folder] = {}

    def write(self, part: State, *, is_checkpoint: bool) -> bool:
        """Make a part durable; false if a later state has the place.  The manifest of an earlier one goes."""
        folder = self._folders.setdefault((is_checkpoint, part.version), Folder())
        if folder.manifest is not None:
            found = folder.manifest[0]
            if number_of(found.era) > number_of(part.era):
                return False
            if (found.name, found.partitions) == (part.name, part.partitions):
                return True
            if found.name != part.name:
                folder.manifest = None
            elif is_checkpoint:
                self.again += 1
        folder.parts[part.partition, part.partitions] = part
        return True

    def complete(self, name: Any, count: int, *, is_checkpoint: bool) -> bool:
        """Write the manifest, if all parts are as they were reported."""
        folder = self._folders[is_checkpoint, name[1]]
        parts = [folder.parts.get((rank, count)) for rank in range(count)]
        whole = [part for part in parts if part is not None and part.name == name]
        if len(whole) < count:
            return False
        folder.manifest = whole
        return True

    def names(self) -> frozenset[DurableState]:
        """Return what is whole, and whether as a checkpoint."""
        folders = self._folders.items()
        whole = [(folder.manifest[0].name, place[0]) for place, folder in folders if folder.manifest]
        return frozenset(whole)

    def parts(self, name: Any) -> list[State] | None:
        """Return all parts of a whole state; None if there is none of that name."""
        for is_checkpoint in (False, True):
            folder = self._folders.get((is_checkpoint, name[1]))
            if folder is not None and folder.manifest and folder.manifest[0].name == name:
                return folder.manifest
        return None

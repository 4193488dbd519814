"""What a member tells of the parts of states that it has written, or could not write."""

from edlz.services.protocol.messages import WrittenPart
from edlz.services.worker.core.groups.inputs import PartWritten

__all__ = ["WrittenParts"]

TOLD = 4  # of the newest ones


class WrittenParts:
    """The newest parts of one member.

    Attributes
    ----------
    told : tuple of WrittenPart
    """

    def __init__(self) -> None:
        self.told: tuple[WrittenPart, ...] = ()
        self._failures = 0  # that tells an attempt from those before

    def note(self, event: PartWritten) -> None:
        """Tell of a part from now on, and of the oldest one no more."""
        self._failures += bool(event.error)
        part = WrittenPart(
            name=event.name,
            rank=event.rank,
            count=event.count,
            is_checkpoint=event.is_checkpoint,
            info=event.info,
            error=event.error,
            attempt=self._failures,
        )
        self.told = (*self.told, part)[-TOLD:]

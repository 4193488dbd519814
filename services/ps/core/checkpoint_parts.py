"""Which parts of checkpoints a partition is writing, and what it has to report of them."""

from edlz.services.protocol.messages import CheckpointPart, Identity, PartInfo

__all__ = ["CheckpointParts"]

MOST_REPORTED = 8
MOST_WAITING = 2  # parts being written; further ones are left out until the disk has caught up


class CheckpointParts:
    """The parts of one partition's life.

    Parts that are whole are reported by rising numbers; one that failed may be tried again.
    """

    def __init__(self) -> None:
        self._waiting: set[tuple[Identity, int]] = set()  # (life, number) of those that are being written
        self._reported: dict[int, CheckpointPart] = {}
        self._last = 0  # durable numbers only rise
        self._attempts = 0

    @property
    def reported(self) -> tuple[CheckpointPart, ...]:
        """What the master has to know: parts that are not yet known to be in a complete checkpoint."""
        return tuple(self._reported.values())

    @property
    def is_full(self) -> bool:
        """Whether the disk has to catch up first."""
        return len(self._waiting) >= MOST_WAITING

    def is_new(self, life: Identity, number: int) -> bool:
        """Whether a part is neither written nor being written."""
        known = self._reported.get(number)
        is_written = number < self._last or (known is not None and known.info is not None)
        return not is_written and (life, number) not in self._waiting

    def begin(self, life: Identity, number: int) -> None:
        """A part is being written."""
        self._waiting.add((life, number))

    def end(self, life: Identity, number: int) -> None:
        """It is not any more, whatever has come of it."""
        self._waiting.discard((life, number))

    def report(self, number: int, version: int, info: PartInfo | None, error: str = "") -> bool:
        """Note what has come of a part; whether that is news."""
        if number < self._last:
            return False
        if info is not None:
            self._last = number
        self._attempts += 1
        self._reported[number] = CheckpointPart(
            number=number, version=version, info=info, error=error, attempt=self._attempts
        )
        while len(self._reported) > MOST_REPORTED:
            del self._reported[min(self._reported)]
        return True

    def rewind(self, version: int) -> None:
        """The partition goes back to a version (sync): later ones are cut again.

        They have the same bits, unless a task is ended that somebody could compute before.
        """
        self._last = min(self._last, version)
        self._reported = {n: part for n, part in self._reported.items() if part.version <= version}

    def forget(self, up_to: int) -> None:
        """The master knows how these have ended."""
        self._reported = {n: part for n, part in self._reported.items() if n > up_to}

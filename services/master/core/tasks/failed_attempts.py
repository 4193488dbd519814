"""How often the attempts at each task have failed, and how often they may."""

from dataclasses import dataclass, field

from edlz.services.protocol.messages import UNKNOWN_INDEX, FailedTask

__all__ = ["MAX_ATTEMPTS", "NO_ROUND", "Attempts", "FailedAttempts", "Key"]

MAX_ATTEMPTS = 3

Attempts = list[tuple[str, FailedTask]]
"""Failed attempts at one task, each with its worker, in the order in which they were reported."""

Key = tuple[int, int]  # of a task, as `FailedTask.key` gives it
NO_ROUND = -1  # of a training task


@dataclass
class FailedAttempts:
    """The failed attempts at training tasks, or at those of evaluation rounds."""

    _by_task: dict[Key, Attempts] = field(default_factory=dict)
    _counted: set[tuple[int, Key, int]] = field(default_factory=set)  # boot, task, number of the attempt

    def count(self, worker: str, boot: int, failed: FailedTask) -> Attempts | None:
        """Count a failed attempt; a repeated report counts once.

        Returns
        -------
        list of (worker, FailedTask), or None
            All attempts at that task, when this was the last one allowed.
        """
        if self.is_counted(boot, failed):
            return None
        self._counted.add((boot, failed.key, failed.attempt))
        attempts = self._by_task.setdefault(failed.key, [])
        attempts.append((worker, failed))
        return attempts if len(attempts) >= MAX_ATTEMPTS else None

    def is_counted(self, boot: int, failed: FailedTask) -> bool:
        """Whether a process of this boot number has reported the attempt before."""
        return (boot, failed.key, failed.attempt) in self._counted

    def forgive_deaths(self, key: Key) -> None:
        """Forget the attempts that ended with their worker."""
        attempts = self._by_task.get(key, [])
        attempts[:] = [attempt for attempt in attempts if attempt[1].index != UNKNOWN_INDEX]

    def forget(self, key: Key) -> None:
        """The attempts at a task start anew."""
        self._by_task.pop(key, None)

"""The minibatches whose code has raised on members of a group, and how often each may be tried."""

from collections import Counter

from edlz.services.master.core.groups.events import GiveUpTask
from edlz.services.protocol.messages import FailedTask, SlotFailure

__all__ = ["MAX_TRIES", "BadMinibatches"]

MAX_TRIES = 3  # of a task whose code raises, by different members


class BadMinibatches:
    """What has raised in one job, under one master's term.

    Attributes
    ----------
    turn : int
        By how much the ranks are turned, so that another member has what failed last.
    """

    def __init__(self) -> None:
        self.turn = 0
        self._tries: Counter[tuple[int, int]] = Counter()  # by task and index
        self._attempts: dict[tuple[int, int], list[tuple[str, FailedTask]]] = {}
        self._given_up: set[int] = set()  # tasks

    def is_given_up(self, task: int) -> bool:
        """Whether the task is to end, so that no more is to be heard of it."""
        return task in self._given_up

    def count(self, worker: str, failed: SlotFailure) -> GiveUpTask | None:
        """Count a try; return what is to be done if it was the last one, else turn the ranks."""
        place = failed.task, failed.index
        self._tries[place] += 1
        if failed.failed is not None:
            self._attempts.setdefault(place, []).append((worker, failed.failed))
        if self._tries[place] < MAX_TRIES:
            self.turn += 1
            return None
        self._given_up.add(failed.task)
        return GiveUpTask(*place, failed.error, tuple(self._attempts.get(place, ())))

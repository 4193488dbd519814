"""The core that notices parameter servers which say nothing any more.

Theory of operation.  A server whose end is told is seen to at once; one whose machine has stopped, or that is frozen,
just falls silent, and requests to it wait.  That is told after SILENCE_S.  It is given up, so that another one is started in
its place, as soon as its launcher knows that its machine does not answer, and else only after a long time: a server
says nothing while it reads a large snapshot, or while one kernel runs over all of its rows.  Should it wake up later, its
incarnation is an old one, and nothing that it says or does counts.
"""

import logging
from collections.abc import Collection

from edlz.services.master.core.processes.live_workers import SILENCE_S
from edlz.services.master.core.vocabulary.instructions import Announce
from edlz.services.master.core.vocabulary.records import GivenUp

__all__ = ["HANG_PERIODS", "SilentServers"]

HANG_PERIODS = 5.0  # so many times as long as a worker may be without progress


class SilentServers:
    """When each parameter server was heard last.

    Parameters
    ----------
    hang_s : float
        Seconds without progress until a worker counts as hung.

    Attributes
    ----------
    unreachable : collection of int
        Servers whose machine does not answer, as far as their launcher knows.
    """

    def __init__(self, hang_s: float) -> None:
        self._hang_s = HANG_PERIODS * hang_s
        self._heard_s: dict[int, float] = {}
        self._silent: set[int] = set()
        self.unreachable: Collection[int] = ()

    def is_silent(self, index: int) -> bool:
        """Whether a server has said nothing for long."""
        return index in self._silent

    def on_heard(self, index: int, now: float) -> list[Announce]:
        """A server has said something."""
        self._heard_s[index] = now
        if index not in self._silent:
            return []
        self._silent.discard(index)
        return [Announce("ps", f"ps-{index} is heard again.")]

    def on_gone(self, index: int) -> None:
        """A server has ended, and that was told: nothing is to be heard of it until its next life."""
        self._heard_s.pop(index, None)
        self._silent.discard(index)

    def on_tick(self, now: float) -> list[Announce | GivenUp]:
        """Tell of the servers that are newly silent, and give up those that will not be heard again."""
        out: list[Announce | GivenUp] = []
        for index, heard_s in list(self._heard_s.items()):
            silent_s = now - heard_s
            if silent_s <= SILENCE_S:
                continue
            is_unreachable, reason = index in self.unreachable, f"nothing heard for {silent_s:.0f}s"
            if is_unreachable or silent_s > self._hang_s:
                del self._heard_s[index]
                self._silent.add(index)  # until it is told how it ended, or speaks again
                where = "its node does not answer, " if is_unreachable else ""
                out.append(GivenUp(f"ps-{index}", where + reason, is_unreachable))
            elif index not in self._silent:
                self._silent.add(index)
                text = f"ps-{index} is silent: {reason}; requests to it wait."
                out.append(Announce("ps", text, logging.WARNING))
        return out

"""Numbers of one master's term, each given once: of processes' incarnations, of eras, lists and orders."""

import itertools

from edlz.services.master.core.vocabulary.instructions import Journal
from edlz.services.protocol.messages import Identity

__all__ = ["Identities"]


class Identities:
    """What one master has named.

    Later ones are greater, and those of a later term than all of an earlier one.

    Parameters
    ----------
    term : int
    """

    def __init__(self, term: int) -> None:
        self._term, self._numbers = term, itertools.count(1)
        self._granted: dict[int, Identity] = {}  # boot -> incarnation, current or not yet used
        self._newest: dict[str, Identity] = {}  # by name, for the journal

    def number(self) -> int:
        """Return another number."""
        return next(self._numbers)

    def new(self) -> Identity:
        """Return another identity."""
        return self._term, self.number()

    def grant(self, name: str, boot: int) -> tuple[Identity, list[Journal]]:
        """Give a process its incarnation, the same at each call; it is to be journalled before that hears of it."""
        if boot in self._granted:
            return self._granted[boot], []
        self._granted[boot] = self._newest[name] = self.new()
        return self._granted[boot], [Journal({"incarnations": dict(self._newest)})]

    def forget(self, name: str) -> None:
        """A process is gone for good."""
        self._newest.pop(name, None)

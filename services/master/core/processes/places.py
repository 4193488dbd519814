"""The core that lets nothing hold the room that the job needs to run at all: parameter servers come first.

Theory of operation.  Without all of its parameter servers a job trains nothing, however many workers it has.  Where
room is short (a cluster) whoever runs processes tells which of them have their *place*: a node has taken them, and
nobody has asked them to go.  While a server lacks its place no further worker is started, and those that wait for a
place themselves are withdrawn, since they could be given the next room that comes free.  A server that is *crowded
out* (there is no room for it, or a quota is used up) although nothing waits beside it any more gets the room of a
worker: the one that matters least, and after a while the next one.  Whether that room would do nobody knows here, and a
node may be about to be added, so each one that gave its room in vain doubles that while.  On one machine whatever is started has its
place, and nothing of this happens.
"""

from collections.abc import Collection, Mapping, Sequence

from edlz.services.supervision.launcher import is_worker

__all__ = ["PATIENCE_S", "Places"]

PATIENCE_S = (
    10.0  # at first: within that a scheduler tries a waiting pod again, and a refused one is created again
)
LONGEST_LEAVE_S = 60.0  # who has not gone by then may never go: the room of another is asked for


class Places:
    """Which services have their place, and what follows from that for the workers.

    Parameters
    ----------
    servers : sequence of str
        The names of all parameter servers.
    """

    def __init__(self, servers: Sequence[str]) -> None:
        self._servers = tuple(servers)
        self._placed: frozenset[str] | None = None  # None: whatever is started has its place
        self._crowded: tuple[str, ...] = ()
        self._crowded_since_s: float | None = None  # with nothing beside it that is about to go
        self._patience_s = PATIENCE_S
        self._lacked = 0  # how many servers had no place
        self._leaving: Mapping[str, float] = {}  # workers that are to go -> since when

    @property
    def lacking(self) -> str:
        """The first parameter server that has no place; nothing if all have theirs."""
        if self._placed is None:
            return ""
        return next((name for name in self._servers if name not in self._placed), "")

    def may_run(self, name: str) -> bool:
        """Whether a service may be started, or go on."""
        return not is_worker(name) or not self.lacking or name in (self._placed or ())

    def on_status(self, placed: Sequence[str] | None, crowded: Sequence[str]) -> None:
        """Which services have their place now, and which parameter servers are crowded out."""
        self._placed = None if placed is None else frozenset(placed)
        self._crowded = tuple(name for name in self._servers if name in crowded)
        lacked = sum(name not in self._placed for name in self._servers) if self._placed is not None else 0
        if lacked < self._lacked or not lacked:  # one has found its place
            self._patience_s = PATIENCE_S
        self._lacked = lacked

    def who_yields(
        self, running: Sequence[str], wanted: Collection[str], by_worth: Sequence[str], now: float
    ) -> tuple[str, str] | None:
        """Return the worker whose room is needed now, and the server that needs it; None as long as nobody's is.

        Parameters
        ----------
        running : sequence of str
            Services that are there, also those that are to go.
        wanted : collection of str
            Services that should be there.
        by_worth : sequence of str
            Workers that hold room, the one that matters least last.
        """
        going = [name for name in running if is_worker(name) and not (name in wanted and self.may_run(name))]
        self._leaving = {name: self._leaving.get(name, now) for name in going}
        is_any_about_to_go = any(now - since < LONGEST_LEAVE_S for since in self._leaving.values())
        if not self._crowded or is_any_about_to_go:
            self._crowded_since_s = None
            return None
        if self._crowded_since_s is None:
            self._crowded_since_s = now
        holders = [name for name in by_worth if name in (self._placed or ())]
        if now - self._crowded_since_s < self._patience_s or not holders:
            return None
        self._crowded_since_s = None
        self._patience_s *= 2  # until it is seen to have helped
        return holders[-1], self._crowded[0]

"""How jobs share the slots of one machine: the decisions, without the file that they meet in.

Theory of operation.  A slot is room for one worker.  Each job has an entry, which only its own supervisor
writes, and works out its own *room* from everybody's: how many workers it may run now.  The slots are *due*
to the jobs' workers in one order that all of them agree on: first the workers that are each job's minimum,
then the others; among those, by rank; among equals, to the older job.  A job's room falls to what is due to
it at once.  It rises only by slots that are in nobody's *claim*, the greater of the workers that a job runs
and those that it was told it may run; so a slot is never given twice, however late a job hears of it or its
workers leave.
"""

from collections.abc import Sequence
from operator import itemgetter

import msgspec

__all__ = ["Entry", "room_of", "slots_of", "waiting_text"]

_Order = tuple[bool, int, float, int, int, str, int]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One job.

    Attributes
    ----------
    pid, start : int
        Its supervisor's process, and when that began in ticks of the kernel: numbers are used again.
    job : str
        Its name.
    slots : int
        How many slots this machine has, as the job was told.
    ranks : tuple of int
        Of each of its workers, the greatest first; the last one is that of all further workers.
    label : str
        What the user called them.
    since_s : float
        When it came, in seconds since the epoch.
    minimum : int
        Workers that are due to it before anybody else's further ones.
    wanted, held : int
        Workers that it could run, and that it runs.
    room : int
        Workers that it may run; what its master was told last.
    """

    pid: int
    start: int
    job: str
    slots: int
    ranks: tuple[int, ...] = (0,)
    label: str = ""
    since_s: float = 0.0
    minimum: int = 0
    wanted: int = 0
    held: int = 0
    room: int = 0

    @property
    def key(self) -> tuple[int, int, str]:
        return (self.pid, self.start, self.job)

    @property
    def claim(self) -> int:
        """Slots that nobody else may take."""
        return max(self.held, self.room)


def slots_of(entries: Sequence[Entry]) -> int:
    """Return how many slots there are: where jobs were told different numbers, the smallest one holds."""
    return min(entry.slots for entry in entries)


def room_of(own: Entry, others: Sequence[Entry]) -> int:
    """Return how many workers a job may run now.

    Parameters
    ----------
    own : Entry
        The job, with what it wants and holds now and the room that it was told last.
    others : sequence of Entry
        All other jobs that are alive.
    """
    entries = (own, *others)
    slots = slots_of(entries)
    due = _due(entries, slots)
    free = max(0, slots - sum(entry.claim for entry in entries))
    kept = [(job, number) for job, number in due if number < entries[job].claim]
    missing = [(job, number) for job, number in due if number >= entries[job].claim]
    return sum(job == 0 for job, _ in (*kept, *missing[:free]))


def waiting_text(own: Entry, others: Sequence[Entry]) -> str:
    """Return what to say of a job that has no slot; nothing if it has one, or none is taken yet."""
    takers = [entry for entry in others if entry.claim]
    if own.claim or not own.wanted or not takers:
        return ""
    taken, slots = sum(entry.claim for entry in takers), slots_of((own, *others))
    names = ", ".join(_name(taker) for taker in takers)
    return f"waiting for a slot: {taken} of {slots} {'is' if taken == 1 else 'are'} taken by {names}"


def _name(entry: Entry) -> str:
    return f'"{entry.job}"' + (f" (priority {entry.label})" if entry.label else "")


def _due(entries: Sequence[Entry], slots: int) -> list[tuple[int, int]]:
    """Return the workers that should run, most important first: (place of their job, number in it)."""
    workers = [
        (_order(entry, number), job, number)
        for job, entry in enumerate(entries)
        for number in range(min(entry.wanted, slots))
    ]
    workers.sort(key=itemgetter(0))
    return [(job, number) for _, job, number in workers[:slots]]


def _order(entry: Entry, number: int) -> _Order:
    rank = entry.ranks[min(number, len(entry.ranks) - 1)]
    return (number >= entry.minimum, -rank, entry.since_s, *entry.key, number)

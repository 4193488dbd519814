"""What happens to which process of a job, and when: drawn from a seed, and from nothing else."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["ALL", "FULL_S", "Fault", "Kind", "Mode", "Schedule", "draw", "fault_of", "places_of"]

Kind = Literal["kill", "again", "stall", "cut", "link", "delay", "end", "mute", "full", "digest", "complete"]
Mode = Literal["sync", "async", "allreduce"]

ALL = "workers"  # all that are there by then

# In parts of the job: not before there is something to lose, nor so late that it comes after the end.
_FIRST, _LAST = 0.1, 0.7
_KINDS: tuple[Kind, ...] = ("kill", "kill", "stall", "cut", "delay", "mute")
_KINDS_OF_SERVERS: tuple[Kind, ...] = (*_KINDS, "end", "end")
_LATE, _TOGETHER, _FULL = 0.4, 0.3, 0.1  # how often a run has one at the end, two at once, a full disk
FULL_S = 5.0
# Shorter and longer than the 10 s of silence after which the master takes a worker for lost.
_STALLS_S = (0.5, 2.0, 4.0, 11.5)


@dataclass(frozen=True)
class Fault:
    """One thing that happens to one process.

    Attributes
    ----------
    kind : kill (SIGKILL), again (the same, and of its successor as soon as that is there), stall (SIGSTOP, later
        SIGCONT), cut (its connections break, new ones are refused for a while), link (the same of those between
        it and another worker), delay (each piece of what its connections carry comes late), end (SIGTERM), mute
        (whoever reads its output goes away), full (the disk under the job's folder), digest (a parameter server
        is killed when its part of the digest is asked for; of ALL, the member that is asked), complete (the
        master is killed when `complete` stands in the journal)
    target : master, ps-0, worker-1, ...: those that the job began with; ALL; or disk
    at_version : it happens once a partition has got so far; the last two when it is their turn
    seconds : how long it lasts; after a kill or an end, how long until the process is started again
    delay_s : how late each piece comes
    other : the worker at the other end of a link
    """

    kind: Kind
    target: str
    at_version: int
    seconds: float
    delay_s: float = 0.0
    other: str = ""

    def __str__(self) -> str:
        late = f" {self.delay_s * 1000:.0f}ms" if self.kind == "delay" else ""
        late = f" to {self.other}" if self.other else late
        where = "at the end" if self.is_late else f"at v{self.at_version}"
        return f"{self.kind} {self.target}{late} {self.seconds:.1f}s {where}"

    @property
    def is_late(self) -> bool:
        """Whether it waits for the end of the job."""
        return self.kind in ("digest", "complete")


@dataclass(frozen=True)
class Schedule:
    """A job and what happens to it, in order of versions."""

    seed: int
    mode: Mode
    workers: int
    partitions: int
    faults: tuple[Fault, ...]


def draw(seed: int, mode: Mode, versions: int, counts: Sequence[int] = (1, 2, 3)) -> Schedule:
    """Return the schedule of a seed, of a job with parameter servers.

    Parameters
    ----------
    versions : int
        How many versions the job has, at least.
    counts : sequence of int
        How many faults there may be.
    """
    chance = random.Random(f"{seed} {mode}")
    workers, partitions = chance.choice((1, 2, 2)), chance.choice((1, 2, 2))
    places = places_of(chance, versions, chance.choice(list(counts)))
    count = len(places)
    alive = [f"worker-{number}" for number in range(workers)]
    servers = ["master", *(f"ps-{number}" for number in range(partitions))]
    late = _late_fault(chance, servers, versions) if chance.random() < _LATE else None
    faults: list[Fault] = []
    for place in places[: count - 1 if late else count]:
        # By role first, or a job's only master would be met less often than one of two workers.
        roles = [role for role in (servers[:1], servers[1:], alive) if role]
        target = chance.choice(chance.choice(roles))
        fault = fault_of(chance, target, place, _KINDS_OF_SERVERS if target.startswith("ps") else _KINDS)
        if fault.kind == "kill" and target in alive:  # its successor has another name
            alive.remove(target)
        if chance.random() < _FULL and not any(one.kind == "full" for one in faults):
            fault = Fault("full", "disk", place, FULL_S)
        faults.append(fault)
    return Schedule(seed, mode, workers, partitions, (*faults, *((late,) if late else ())))


def places_of(chance: random.Random, versions: int, count: int) -> list[int]:
    """Return at which versions so many faults happen, perhaps two of them together."""
    places = sorted(chance.sample(range(int(_FIRST * versions), int(_LAST * versions)), count))
    if count > 1 and chance.random() < _TOGETHER:
        places[1] = places[0]
    return places


def _late_fault(chance: random.Random, servers: Sequence[str], versions: int) -> Fault:
    kind: Kind = chance.choice(("digest", "complete"))
    target = "master" if kind == "complete" else chance.choice(servers[1:])
    return Fault(kind, target, versions, round(chance.uniform(0, 1), 1))


def fault_of(chance: random.Random, target: str, at_version: int, kinds: Sequence[Kind]) -> Fault:
    """Return a fault of one of these kinds of a process."""
    kind = chance.choice(kinds)
    if kind in ("kill", "again", "end"):
        return Fault(kind, target, at_version, round(chance.uniform(0, 1), 1))
    if kind in ("mute", "link"):
        return Fault(kind, target, at_version, 0.0)
    if kind == "stall":
        return Fault(kind, target, at_version, chance.choice(_STALLS_S))
    if kind == "cut":
        return Fault(kind, target, at_version, round(chance.uniform(0, 3), 1))
    return Fault(kind, target, at_version, round(chance.uniform(1.5, 3), 1), chance.choice((0.02, 0.1, 0.3)))

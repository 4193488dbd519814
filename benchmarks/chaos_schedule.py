"""What happens to which process of a job, and when: drawn from a seed, and from nothing else."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Fault", "Kind", "Mode", "Schedule", "draw"]

Kind = Literal["kill", "stall", "cut", "delay"]
Mode = Literal["sync", "async"]

# In parts of the job: not before there is something to lose, nor so late that it comes after the end.
_FIRST, _LAST = 0.1, 0.7
_KINDS: tuple[Kind, ...] = ("kill", "kill", "stall", "cut", "delay")
# Shorter and longer than the 10 s of silence after which the master takes a worker for lost.
_STALLS_S = (0.5, 2.0, 4.0, 11.5)


@dataclass(frozen=True)
class Fault:
    """One thing that happens to one process.

    Attributes
    ----------
    kind : kill (SIGKILL), stall (SIGSTOP, later SIGCONT), cut (its connections break, new ones are refused
        for a while), delay (each piece of what its connections carry comes late)
    target : master, ps-0, worker-1, ...: those that the job began with
    at_version : it happens once a partition has got so far
    seconds : how long it lasts; after a kill, how long until the process is started again
    delay_s : how late each piece comes
    """

    kind: Kind
    target: str
    at_version: int
    seconds: float
    delay_s: float = 0.0

    def __str__(self) -> str:
        late = f" {self.delay_s * 1000:.0f}ms" if self.kind == "delay" else ""
        return f"{self.kind} {self.target}{late} {self.seconds:.1f}s at v{self.at_version}"


@dataclass(frozen=True)
class Schedule:
    """A job and what happens to it, in order of versions."""

    seed: int
    mode: Mode
    workers: int
    partitions: int
    faults: tuple[Fault, ...]


def draw(seed: int, mode: Mode, versions: int, counts: Sequence[int] = (1, 2, 3)) -> Schedule:
    """Return the schedule of a seed.

    Parameters
    ----------
    versions : int
        How many versions the job has, at least.
    counts : sequence of int
        How many faults there may be.
    """
    chance = random.Random(f"{seed} {mode}")
    workers, partitions = chance.choice((1, 2, 2)), chance.choice((1, 2, 2))
    count = chance.choice(list(counts))
    places = sorted(chance.sample(range(int(_FIRST * versions), int(_LAST * versions)), count))
    alive = [f"worker-{number}" for number in range(workers)]
    servers = ["master", *(f"ps-{number}" for number in range(partitions))]
    faults = []
    for place in places:
        # By role first, or a job's only master would be met less often than one of two workers.
        roles = [role for role in (servers[:1], servers[1:], alive) if role]
        target = chance.choice(chance.choice(roles))
        fault = _fault(chance, target, place)
        if fault.kind == "kill" and target in alive:  # its successor has another name
            alive.remove(target)
        faults.append(fault)
    return Schedule(seed, mode, workers, partitions, tuple(faults))


def _fault(chance: random.Random, target: str, at_version: int) -> Fault:
    kind = chance.choice(_KINDS)
    if kind == "kill":
        return Fault(kind, target, at_version, round(chance.uniform(0, 1), 1))
    if kind == "stall":
        return Fault(kind, target, at_version, chance.choice(_STALLS_S))
    if kind == "cut":
        return Fault(kind, target, at_version, round(chance.uniform(0, 3), 1))
    return Fault(kind, target, at_version, round(chance.uniform(1.5, 3), 1), chance.choice((0.02, 0.1, 0.3)))

"""What happens to the processes of an all-reduce job, and when: drawn from a seed, and from nothing else."""

import random
from collections.abc import Sequence

from benchmarks.chaos_schedule import ALL, FULL_S, Fault, Kind, Schedule, fault_of, places_of

__all__ = ["draw_group"]

_SIZES = (1, 2, 2, 3, 3, 4)  # of groups
_MASTER, _FULL, _ALL, _LATE = (
    0.25,
    0.08,
    0.12,
    0.4,
)  # how often it is the master, the disk, all members, the end
_OF_MASTER: tuple[Kind, ...] = ("kill", "kill", "stall", "cut", "delay", "mute")
_OF_MEMBERS: tuple[Kind, ...] = (
    *("kill", "kill", "again", "stall", "stall", "cut"),
    *("link", "link", "delay", "end", "mute"),
)
_LINKS_S = (0.5, 3.0, 12.0)  # a link counts as broken after 8 s without a byte


def draw_group(seed: int, versions: int, counts: Sequence[int] = (1, 2, 3)) -> Schedule:
    """Return the schedule of a seed; see `draw`."""
    chance = random.Random(f"{seed} allreduce")
    workers = chance.choice(_SIZES)
    alive = [f"worker-{number}" for number in range(workers)]
    places = places_of(chance, versions, chance.choice(list(counts)))
    late = _late_fault(chance, versions) if chance.random() < _LATE else None
    faults: list[Fault] = []
    for place in places[: len(places) - 1 if late else len(places)]:
        fault = _fault(chance, alive, place)
        if fault.kind == "full" and any(one.kind == "full" for one in faults):
            fault = fault_of(chance, "master", place, _OF_MASTER)
        if fault.target == ALL:
            alive.clear()
        elif fault.kind in ("kill", "again", "end") and fault.target in alive:
            alive.remove(fault.target)  # its successor has another name
        faults.append(fault)
    return Schedule(seed, "allreduce", workers, 0, (*faults, *((late,) if late else ())))


def _late_fault(chance: random.Random, versions: int) -> Fault:
    kind: Kind = chance.choice(("digest", "complete"))
    target = "master" if kind == "complete" else ALL
    return Fault(kind, target, versions, round(chance.uniform(0, 1), 1))


def _fault(chance: random.Random, alive: Sequence[str], at_version: int) -> Fault:
    who = chance.random()
    if who < _FULL:
        return Fault("full", "disk", at_version, FULL_S)
    if who < _FULL + _ALL:
        return Fault("kill", ALL, at_version, round(chance.uniform(0, 1), 1))
    if who < _FULL + _ALL + _MASTER or not alive:
        return fault_of(chance, "master", at_version, _OF_MASTER)
    target = chance.choice(list(alive))
    kinds = [kind for kind in _OF_MEMBERS if kind != "link" or len(alive) > 1]
    fault = fault_of(chance, target, at_version, kinds)
    if fault.kind != "link":
        return fault
    other = chance.choice([worker for worker in alive if worker != target])
    return Fault("link", target, at_version, chance.choice(_LINKS_S), other=other)

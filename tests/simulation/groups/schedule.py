"""What a simulated all-reduce job is to do, and what befalls it."""

import random
from dataclasses import dataclass, field, replace

from edlz.services.protocol.plan import Plan, Shard
from tests import builders

MOMENTS = (
    *(
        "promised",
        "fetching",
        "computing",
        "staged",
        "advancing",
        "held",
        "failed",
        "sealing",
        "sealed",
        "loading",
        "assembling",
    ),
    *("gathering", "formed", "evaluating", "complete"),
)

__all__ = [
    "MOMENTS",
    "GroupFault",
    "GroupSchedule",
    "random_group_schedule",
    "with_damage",
    "with_hosts",
    "with_spares",
]

KINDS = (
    *("kill", "kill", "kill", "all", "master", "stall", "stall master"),
    *("cut", "link", "island", "join", "join", "leave"),
)


@dataclass(frozen=True)
class GroupFault:
    """At some time something happens to a worker (the `who`-th of those that live then) or to the master.

    kill (replaced), leave (not replaced), all (killed at once), stall, cut (from the master), link (between it and
    another one), hosts (the same between all workers of the hosts of those two, which may be one), island (it and no other worker
    reach each other, now and later), damage (its state in memory changes), hang (what it computes does not end), join (one
    more), master (killed), stall master.  `seconds`: how long.
    `during`: `at` seconds after a member (`who` is that one then) or the group enters this state for the `nth` time; of a
    member also "staged v7".
    """

    at: float
    kind: str
    who: int = 0
    seconds: float = 0.0
    during: str = ""
    nth: int = 1


@dataclass(frozen=True)
class GroupSchedule:
    """Everything that happens, apart from delays and losses, which follow from `seed`."""

    seed: int
    slots: int
    epochs: int
    lengths: tuple[int, ...]  # minibatches of each task, over all epochs
    workers: int
    noise: float = 0.0  # share of the messages that are lost
    bad: tuple[tuple[int, int], ...] = ()  # minibatches (task, index) whose code always raises
    flaky: tuple[tuple[int, int, int], ...] = ()  # (task, index, times): it raises so often
    slow: tuple[tuple[int, int, float], ...] = ()  # (task, index, seconds): it takes so long
    is_function: bool = True  # gradients: else they differ each time they are computed
    snapshot_s: float | None = 10.0  # None: members share no folder, and nothing is kept
    checkpoint_steps: int = 0
    evaluation_steps: int = 0
    hosts: int = 3  # on which the workers are, in turn
    unreadable: int = 0  # so many tries to read a durable state fail
    check_steps: int = 3  # between comparisons of members' states
    spares: int = 0  # workers besides, that are called when others are lost
    faults: tuple[GroupFault, ...] = field(default=())

    @property
    def is_damaged(self) -> bool:
        """Whether some member's state is damaged at some time."""
        return any(fault.kind == "damage" for fault in self.faults)

    @property
    def plan(self) -> Plan:
        tasks = len(self.lengths) // self.epochs
        return builders.plan(
            seed=1,
            shards=(Shard(name="data", first=0, count=tasks * 4),),
            records_per_task=4,
            epochs=self.epochs,
            slots=self.slots,
        )


def random_group_schedule(seed: int, *, is_function: bool = True) -> GroupSchedule:
    """Draw a job and up to six faults."""
    r = random.Random(seed)
    epochs, tasks = r.randint(1, 2), r.randint(1, 7)
    lengths = tuple(r.choice((0, 1, 2, 3, 5)) for _ in range(epochs * tasks))
    bad: tuple[tuple[int, int], ...] = ()
    flaky: tuple[tuple[int, int, int], ...] = ()
    task = r.randrange(len(lengths))
    if r.random() < 0.4 and lengths[task]:
        index = r.randrange(lengths[task])
        if r.random() < 0.5:
            bad = ((task, index),)
        else:
            flaky = ((task, index, r.randint(1, 2)),)
    return GroupSchedule(
        seed=seed,
        slots=r.randint(1, 6),
        epochs=epochs,
        lengths=lengths,
        workers=r.randint(1, 4),
        noise=r.choice((0.0, 0.0, 0.02, 0.1)),
        bad=bad,
        flaky=flaky,
        slow=((r.randrange(len(lengths)), 0, r.uniform(9, 25)),) if r.random() < 0.3 else (),
        is_function=is_function,
        snapshot_s=r.choice((2.0, 5.0, 1000.0)),
        checkpoint_steps=r.choice((0, 3, 5)),
        evaluation_steps=r.choice((0, 0, 1, 2, 4)),
        unreadable=r.choice((0, 0, 1, 2)),
        faults=tuple(_fault(r) for _ in range(r.randint(0, 6))),
        check_steps=r.choice((1, 3, 5)),
    )


def with_spares(schedule: GroupSchedule) -> GroupSchedule:
    """Return the same schedule with one or two spares."""
    return replace(schedule, spares=1 + schedule.seed % 2)


def with_damage(schedule: GroupSchedule) -> GroupSchedule:
    """Return the same schedule with one or two members whose state is damaged."""
    r = random.Random(f"damage {schedule.seed}")
    found = [
        GroupFault(at=r.uniform(3, 30), kind="damage", who=r.randrange(12)) for _ in range(r.randint(1, 2))
    ]
    return replace(schedule, faults=(*schedule.faults, *found))


def with_hosts(schedule: GroupSchedule) -> GroupSchedule:
    """Return the same schedule with one or two hosts that do not reach each other, or members that hang."""
    r = random.Random(f"hosts {schedule.seed}")
    found = [
        GroupFault(
            at=r.uniform(3, 30),
            kind=r.choice(("hosts", "hang")),
            who=r.randrange(12),
            seconds=r.choice((r.uniform(1, 60), 1e9)),
        )
        for _ in range(r.randint(1, 2))
    ]
    return replace(schedule, hosts=r.randint(1, 4), faults=(*schedule.faults, *found))


def _fault(r: random.Random) -> GroupFault:
    kind = r.choice(KINDS)
    seconds = r.uniform(1, 18)
    if (kind == "link" and r.random() < 0.5) or kind == "island":
        seconds = 1e9
    return GroupFault(at=r.uniform(1, 40), kind=kind, who=r.randrange(12), seconds=seconds)

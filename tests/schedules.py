"""Random schedules for the simulated job."""

import dataclasses
import random
from collections.abc import Sequence

from hypothesis import strategies as st

from tests.simulation.schedule import (
    BARRIER_MOMENTS,
    BEGINNING_MOMENTS,
    EXPORT_MOMENTS,
    MOMENTS,
    Fault,
    Schedule,
)

__all__ = [
    "beginning_schedule",
    "contended_schedule",
    "ending_schedule",
    "exporting_schedule",
    "quiet_schedule",
    "random_schedule",
    "schedules",
    "wide_schedules",
    "with_callbacks",
    "with_checkpoints",
    "with_departures",
    "with_supervision",
    "without_training",
]


def quiet_schedule(mode: str, *faults: Fault, **changes: object) -> Schedule:
    """A job of 64 minibatches that saves nothing by itself."""
    about = Schedule(
        seed=4,
        mode=mode,
        slots=2,
        epochs=1,
        lengths=(4,) * 16,
        partitions=2,
        workers=2,
        snapshot_every_s=500.0,
        has_tables=True,
        faults=faults,
    )
    return dataclasses.replace(about, **changes)  # type: ignore[arg-type]


@st.composite
def schedules(draw: st.DrawFn, mode: str, is_hard: bool = False) -> Schedule:
    """A small job and what befalls it; finitely many faults, then at least one worker."""
    epochs = draw(st.integers(1, 3))
    tasks = draw(st.integers(1, 5))
    partitions, workers = draw(st.sampled_from((1, 2, 2, 3, 4))), draw(st.integers(1, 4))
    roles = ["m", *(f"p{p}" for p in range(partitions)), *(f"w{w}" for w in range(workers))]
    fault = st.builds(
        Fault,
        at=st.floats(0, 80),
        kind=st.sampled_from(
            ("kill", "kill", "term", "wipe", "stall", "stall", "cut", "join", "full", "foreign")
        ),
        role=st.sampled_from(roles),
        seconds=st.floats(1, 60),
        is_replaced=st.booleans(),
    )
    faults = sorted(draw(st.lists(fault, max_size=20 if is_hard else 8)), key=lambda f: f.at)
    at_the_end = st.builds(
        Fault,
        at=st.floats(0, 4),
        kind=st.sampled_from(("kill", "kill", "term", "stall", "cut", "foreign")),
        role=st.sampled_from(roles),
        seconds=st.floats(1, 20),
        during=st.sampled_from(MOMENTS),
    )
    faults += draw(st.lists(at_the_end, max_size=4 if is_hard else 2))
    last = max([f.at for f in faults if not f.during], default=0.0)
    evaluation = draw(st.integers(0, 2))
    count = epochs * tasks
    skips = draw(st.booleans())
    failing = st.tuples(st.integers(0, count - 1), st.integers(1, 6 if skips else 2))
    bad = st.tuples(st.integers(0, count - 1), st.integers(0, 3))
    return Schedule(
        seed=draw(st.integers(0, 2**31)),
        mode=mode,
        slots=draw(st.integers(1, 4)),
        epochs=epochs,
        lengths=tuple(draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))),
        partitions=partitions,
        workers=workers,
        noise=draw(st.sampled_from((0.0, 0.02, 0.1))),
        snapshot_every_s=draw(st.sampled_from((2.0, 10.0, 30.0))),
        evaluation_steps=draw(st.sampled_from((0, 2, 5))) if evaluation else 0,
        evaluation_tasks=evaluation,
        failing=tuple(draw(st.lists(failing, max_size=2))),
        has_tables=draw(st.booleans()),
        checkpoint_steps=draw(st.sampled_from((0, 2, 5))),
        keeps=draw(st.sampled_from((0, 1, 2))),
        can_link=draw(st.booleans()),
        has_foreign=draw(st.booleans()),
        begins_from=draw(st.sampled_from((0, 0, 300))),
        tolerance=draw(st.sampled_from((0, 0, 1, 3))) if mode == "async" else 0,
        vectors_every=draw(st.sampled_from((1, 1, 3))) if mode == "async" else 1,
        skips=skips,
        bad=tuple(draw(st.lists(bad, max_size=3))) if skips else (),
        bad_evaluations=tuple(range(draw(st.integers(0, evaluation)))) if skips else (),
        credits=draw(st.sampled_from((1, 2, 32))),
        nonfinite=((draw(st.integers(0, count - 1)), draw(st.integers(0, 3))),),
        faults=(*faults, Fault(last, "join", "w0")),
    )


@st.composite
def wide_schedules(draw: st.DrawFn, mode: str) -> Schedule:
    """Any number of slots for any number of workers, which may die, and of requests under way."""
    slots, workers = draw(st.integers(1, 48)), draw(st.integers(1, 5))
    count = draw(st.integers(1, 2 * slots))
    kill = st.builds(
        Fault,
        at=st.floats(5, 40),
        kind=st.just("kill"),
        role=st.sampled_from([f"w{w}" for w in range(workers)]),
    )
    kills = sorted(draw(st.lists(kill, max_size=2)), key=lambda f: f.at)
    return Schedule(
        seed=draw(st.integers(0, 2**31)),
        mode=mode,
        slots=slots,
        epochs=1,
        lengths=tuple(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))),
        partitions=draw(st.integers(1, 2)),
        workers=workers,
        has_tables=draw(st.booleans()),
        tolerance=draw(st.sampled_from((0, 1))) if mode == "async" else 0,
        credits=draw(st.sampled_from((1, 2, 8, 32))),
        faults=tuple(kills),
    )


def random_schedule(seed: int, mode: str) -> Schedule:
    """A schedule with several faults that follows from a number: cheaper to search than `schedules`."""
    rng = random.Random(seed)
    partitions, workers = rng.choice((1, 2, 2, 3)), rng.randint(1, 4)
    epochs, tasks = rng.randint(1, 2), rng.randint(2, 5)
    roles = ["m", *(f"p{p}" for p in range(partitions)), *(f"w{w}" for w in range(workers))]
    faults = [
        Fault(
            rng.uniform(0, 60),
            rng.choice(("kill", "kill", "stall", "cut")),
            rng.choice(roles),
            rng.uniform(1, 60),
            rng.random() < 0.5,
        )
        for _ in range(rng.randint(0, 6))
    ]
    last = max([fault.at for fault in faults], default=0.0)
    evaluation = rng.randint(0, 2)
    return Schedule(
        seed=seed,
        mode=mode,
        slots=rng.randint(1, 4),
        epochs=epochs,
        lengths=tuple(rng.randint(0, 4) for _ in range(epochs * tasks)),
        partitions=partitions,
        workers=workers,
        noise=rng.choice((0.0, 0.02, 0.1)),
        snapshot_every_s=rng.choice((2.0, 10.0)),
        evaluation_steps=rng.choice((0, 2)) if evaluation else 0,
        evaluation_tasks=evaluation,
        has_tables=rng.random() < 0.5,
        checkpoint_steps=rng.choice((0, 2, 4)),
        tolerance=rng.choice((0, 0, 1, 3)) if mode == "async" else 0,
        vectors_every=rng.choice((1, 1, 3)) if mode == "async" else 1,
        faults=(*sorted(faults, key=lambda fault: fault.at), Fault(last, "join", "w0")),
        credits=rng.choice((1, 2, 32)),
    )


def beginning_schedule(seed: int, mode: str) -> Schedule:
    """A short job to whose beginning something happens: partitions are bare, initial values under way."""
    rng = random.Random(seed)
    partitions, workers, tasks = rng.choice((1, 1, 2)), rng.choice((1, 1, 2)), rng.randint(1, 3)
    roles = ("m", *(f"p{p}" for p in range(partitions) for _ in range(2)), "w0")
    faults = _faults_during(BEGINNING_MOMENTS, ("kill", "stall", "stall", "cut", "wipe", "term"), roles, rng)
    job = _short_job(seed, mode, partitions, workers, tasks, rng)
    return dataclasses.replace(job, credits=rng.choice((1, 2, 32)), faults=faults)


def ending_schedule(seed: int, mode: str) -> Schedule:
    """A short job to whose end something happens, at any of its moments."""
    rng = random.Random(seed)
    partitions, workers, tasks = rng.choice((1, 2, 3)), rng.randint(1, 2), rng.randint(1, 3)
    roles = ("m", "m", *(f"p{p}" for p in range(partitions)), "w0")
    faults = _faults_during(MOMENTS, ("kill", "kill", "kill", "stall", "cut"), roles, rng)
    evaluation = rng.randint(0, 1)
    job = _short_job(seed, mode, partitions, workers, tasks, rng)
    return dataclasses.replace(
        job, evaluation_tasks=evaluation, checkpoint_steps=rng.choice((0, 2)), faults=faults
    )


def _faults_during(
    moments: Sequence[str], kinds: Sequence[str], roles: Sequence[str], rng: random.Random
) -> tuple[Fault, ...]:
    """One to three faults at moments of a job's life."""
    return tuple(
        Fault(
            rng.choice((0.0, 0.3, 2.0)) * rng.random(),
            rng.choice(kinds),
            rng.choice(roles),
            rng.uniform(1, 20),
            during=rng.choice(moments),
        )
        for _ in range(rng.randint(1, 3))
    )


def _short_job(
    seed: int, mode: str, partitions: int, workers: int, tasks: int, rng: random.Random
) -> Schedule:
    return Schedule(
        seed=seed,
        mode=mode,
        slots=rng.randint(1, 2),
        epochs=1,
        lengths=tuple(rng.randint(0, 2) for _ in range(tasks)),
        partitions=partitions,
        workers=workers,
        noise=rng.choice((0.0, 0.05)),
        has_tables=rng.random() < 0.5,
    )


def without_training(schedule: Schedule, **changes: object) -> Schedule:
    """The same as a job that only evaluates, or predicts."""
    return dataclasses.replace(
        schedule,
        epochs=0,
        lengths=(),
        failing=(),
        bad=(),
        checkpoint_steps=0,
        evaluation_steps=0,
        evaluation_tasks=max(1, schedule.evaluation_tasks),
        **changes,  # type: ignore[arg-type]
    )


def exporting_schedule(seed: int, mode: str) -> Schedule:
    """A short job that exports its model, to which something happens meanwhile."""
    schedule, rng = ending_schedule(seed, mode), random.Random(seed)
    faults = [dataclasses.replace(fault, during=rng.choice(EXPORT_MOMENTS)) for fault in schedule.faults]
    faults += [Fault(rng.uniform(0, 3), "kill", "w0", during="exporting") for _ in range(rng.randint(0, 1))]
    if mode == "async":
        faults += [
            Fault(rng.uniform(0, 3), "wipe", "p0", during="exporting") for _ in range(rng.randint(0, 1))
        ]
    return dataclasses.replace(schedule, exports=True, faults=tuple(faults))


def contended_schedule(seed: int, mode: str) -> Schedule:
    """A schedule in which tasks are ended that others, stalled or slow, are still at."""
    rng = random.Random(seed)
    partitions, tasks = rng.choice((2, 3)), rng.randint(2, 4)
    roles = ("w1", "w1", "w2", "p0", "p1", "m")
    faults = [
        Fault(
            rng.uniform(3, 40),
            rng.choice(("stall", "stall", "kill", "cut")),
            rng.choice(roles),
            rng.uniform(8, 20),
        )
        for _ in range(rng.randint(2, 8))
    ]
    last = max(fault.at for fault in faults)
    return Schedule(
        seed=seed,
        mode=mode,
        slots=rng.randint(1, 3),
        epochs=1,
        lengths=tuple(rng.randint(2, 6) for _ in range(tasks)),
        partitions=partitions,
        workers=3,
        noise=rng.choice((0.0, 0.05, 0.1)),
        snapshot_every_s=rng.choice((2.0, 10.0)),
        has_tables=rng.random() < 0.3,
        checkpoint_steps=rng.choice((0, 4)),
        tolerance=rng.choice((0, 0, 2)) if mode == "async" else 0,
        skips=True,
        lame=tuple(("w0", task) for task in range(tasks)),
        faults=(*sorted(faults, key=lambda fault: fault.at), Fault(last, "join", "w0")),
    )


def with_departures(schedule: Schedule) -> Schedule:
    """The same with partitions that are told to end, at any time, and killed before, while or after they leave."""
    rng = random.Random(schedule.seed)
    roles = [f"p{p}" for p in range(schedule.partitions)]
    graces = (0.5, 2.0, 6.0, 20.0)
    told = [Fault(rng.uniform(2, 60), "term", rng.choice(roles), rng.choice(graces)) for _ in range(3)]
    told += [
        Fault(rng.uniform(0, 3), "term", rng.choice(roles), rng.choice(graces), during=rng.choice(MOMENTS))
        for _ in range(2)
    ]
    faults = sorted([*told, *schedule.faults], key=lambda fault: fault.at)
    return dataclasses.replace(
        schedule,
        snapshot_every_s=rng.choice((2.0, 500.0)),
        faults=(*faults, Fault(faults[-1].at, "join", "w0")),
    )


def with_supervision(schedule: Schedule, home: str) -> Schedule:
    """The same on a machine or a cluster that starts and ends its processes, with spares, and scaled now and then."""
    rng = random.Random(schedule.seed)
    scales = tuple((rng.uniform(5, 60), rng.randint(1, 4)) for _ in range(rng.randint(0, 2)))
    has_little_room = home == "machine" and rng.random() < 0.3
    apart = [
        Fault(rng.uniform(5, 60), "apart", rng.choice(("w0", "p0")), rng.uniform(15, 60))
        for _ in range(rng.randint(0, 1))
    ]
    return dataclasses.replace(
        schedule,
        home=home,
        spares=rng.choice((0, 0, 1)),
        scales=scales,
        rooms=((0.0, rng.randint(1, 3)), (rng.uniform(5, 60), 4)) if has_little_room else (),
        faults=(*schedule.faults, *apart),
    )


def with_checkpoints(schedule: Schedule) -> Schedule:
    """The same with disks that are lost, and checkpoints of this run and of another to go back to."""
    rng = random.Random(schedule.seed)
    return dataclasses.replace(
        schedule,
        checkpoint_steps=2,
        keeps=rng.choice((0, 1, 2)),
        can_link=rng.random() < 0.5,
        has_foreign=rng.random() < 0.5,
        faults=tuple(
            dataclasses.replace(fault, kind="wipe") if fault.kind == "kill" and rng.random() < 0.5 else fault
            for fault in schedule.faults
        ),
        begins_from=rng.choice((0, 300)),
    )


def with_callbacks(schedule: Schedule) -> Schedule:
    """The same job with callbacks, which decide or not, and something more that happens at barriers."""
    rng = random.Random(schedule.seed)
    roles = ["m", *(f"p{p}" for p in range(schedule.partitions)), *(f"w{w}" for w in range(schedule.workers))]
    kinds = ("kill", "kill", "stall", "cut", "term", "wipe")
    more = [
        Fault(
            rng.uniform(0, 3),
            rng.choice(kinds),
            rng.choice(roles),
            rng.uniform(1, 30),
            during=rng.choice(BARRIER_MOMENTS),
        )
        for _ in range(rng.randint(0, 3))
    ]
    return dataclasses.replace(
        schedule,
        has_callbacks=True,
        decides=rng.random() < 0.8,
        stops_behind=rng.choice((-1, -1, 0, 1, 2)),
        keeps_best=schedule.mode == "sync" and rng.random() < 0.5,
        max_step=rng.choice((0, 0, rng.randint(1, 20))),
        workers_tell_max_step=rng.random() < 0.5,
        failing=(),  # a history that ends tasks by chance is another one after a roll-back
        lame=(),
        faults=(*schedule.faults, *more, Fault(200.0, "join", "w0")),
    )

"""Jobs whose data grows while they run: each record once, and the bits follow from the journal alone."""

import random

import pytest

from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.progress.progress import Progress
from edlz.services.protocol.job_status import JobStatus
from tests.simulation.job import Fault, Schedule, SimulatedJob
from tests.simulation.schedule import GROWTH_MOMENTS

FILES = ((0.0, 3), (5.0, 1), (6.0, 2), (60.0, 4), (61.0, 1), (120.0, 5))
ALL = 4 * sum(tasks for _, tasks in FILES)


def schedule(seed: int, mode: str = "sync", **more: object) -> Schedule:
    about = {"slots": 2, "partitions": 2, "workers": 2, "max_step": ALL, "files": FILES, **more}
    return Schedule(seed, mode, epochs=0, lengths=(), **about)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("partitions", [1, 2])
def test_what_comes_is_trained_once(mode: str, workers: int, partitions: int) -> None:
    job = SimulatedJob(schedule(1, mode, workers=workers, partitions=partitions, slots=3)).run()
    assert len(job.journal["pieces"]) >= 2
    assert job.schedule.grown_plan.size_of(job.journal["task_count"])[0] == ALL


def test_the_same_journal_gives_the_same_bits() -> None:
    """The pieces may be cut in another way each time, and each time the reference follows them."""
    cuts = {SimulatedJob(schedule(seed, workers=1 + seed % 3)).run().journal["pieces"] for seed in range(3)}
    assert len(cuts) > 1


def drawn(seed: int) -> Schedule:
    """A schedule in which anything may be, and befall anybody, at any of its moments."""
    rng = random.Random(seed)
    mode = rng.choice(["sync", "sync", "async"])
    files = [
        (0.0, rng.randint(1, 4)),
        *((rng.uniform(1, 150), rng.randint(1, 4)) for _ in range(rng.randint(1, 6))),
    ]
    total = 4 * sum(tasks for _, tasks in files)
    partitions, workers = rng.randint(1, 3), rng.randint(1, 3)
    roles = ["m", *(f"p{i}" for i in range(partitions)), *(f"w{i}" for i in range(workers))]
    faults = [
        Fault(
            rng.uniform(0, 20) if moment else rng.uniform(1, 180),
            rng.choice(["kill", "kill", "stall", "cut", "full", "term" if mode == "sync" else "kill"]),
            rng.choice(roles),
            seconds=rng.uniform(1, 30),
            during=moment,
        )
        for moment in rng.sample(["", "", "", *GROWTH_MOMENTS], rng.randint(0, 4))
    ]
    has_callbacks = rng.random() < 0.5
    return schedule(
        seed,
        mode,
        slots=rng.randint(1, 4) if mode == "sync" else 1,
        files=tuple(files),
        max_step=total if rng.random() < 0.6 else rng.randint(4 * files[0][1], total),
        partitions=partitions,
        workers=workers,
        noise=rng.choice([0.0, 0.1]),
        evaluation_steps=rng.choice([0, 2, 5]),
        evaluation_tasks=rng.choice([0, 2]),
        has_tables=rng.random() < 0.4,
        checkpoint_steps=rng.choice([0, 3]),
        keeps=rng.choice([0, 2]),
        has_callbacks=has_callbacks,
        decides=has_callbacks and rng.random() < 0.6,
        workers_tell_max_step=rng.random() < 0.3,
        home=rng.choice(["hand", "hand", "machine", "pods"]),
        faults=tuple(faults),
    )


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_or_doubled_whatever_befalls(seed: int) -> None:
    SimulatedJob(drawn(seed)).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 200))
def test_much_befalls(seed: int) -> None:
    SimulatedJob(drawn(seed)).run()


@pytest.mark.parametrize("moment", GROWTH_MOMENTS)
@pytest.mark.parametrize("role", ["m", "p0", "w0"])
def test_each_moment_is_survived(moment: str, role: str) -> None:
    faults = (Fault(0.0, "kill", role, during=moment), Fault(3.0, "kill", role, during=moment))
    SimulatedJob(schedule(3, faults=faults, checkpoint_steps=4)).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_stop_while_nothing_comes_saves_what_there_is(mode: str) -> None:
    job = SimulatedJob(schedule(2, mode, stop_at=50.0, max_step=0)).run()
    assert job.now < 70
    saved = job.journal["saved"]
    assert saved > 0
    known = job.schedule.grown_plan.known
    for state in job.checkpoints[saved]:
        assert state.ledger.finished == (0, known)
        assert state.folded == sum(job.schedule.lengths[:known])
        assert len(state.counts) == 0


@pytest.mark.parametrize("seed", range(8))
def test_epochs_without_end(seed: int) -> None:
    """They are ended by the number of steps, inside of one; callbacks are called as in a job of so many epochs."""
    rng = random.Random(seed)
    lengths = tuple(rng.randint(0, 3) for _ in range(5 * 6))
    about = Schedule(
        seed,
        rng.choice(["sync", "async"]),
        rng.randint(1, 3),
        epochs=0,
        lengths=lengths,
        partitions=rng.randint(1, 2),
        workers=2,
        endless_tasks=5,
        max_step=rng.randint(4 * 6, 4 * 27),
        evaluation_steps=rng.choice([0, 7]),
        evaluation_tasks=2,
        has_callbacks=True,
        decides=rng.random() < 0.7,
        faults=tuple(Fault(rng.uniform(5, 40), "kill", role) for role in ("m", "p0", "w0")),
    )
    SimulatedJob(about).run()


def seen_of(job: SimulatedJob, *, now: float) -> JobStatus:
    """Return what a screen shows of a job that is looked at from then on, for three seconds."""
    job.run_until(now)
    master = job.process("m")
    assert master is not None
    progress = Progress(master.core, 1e9, job.now, JournalState())
    for later in range(12):
        progress.sample(now + later / 4)
    return progress.status(0, now + 3)


def test_a_job_that_waits_for_data_is_seen_to_do_so() -> None:
    job = SimulatedJob(schedule(1, max_step=0))
    status = seen_of(job, now=50.0)
    assert (status.state, status.is_endless, status.waits_for_data_s) == ("Training", True, 3.0)
    assert (status.records, status.records_total, status.share) == (24, 24, None)
    assert status.epoch_text == "epoch 1"
    assert status.stalled_s is None
    assert status.eta_s is None
    assert status.tasks_done == status.tasks_total == job.schedule.grown_plan.known


def test_a_job_with_an_end_says_how_far_it_is() -> None:
    status = seen_of(SimulatedJob(schedule(1, max_step=12)), now=15.0)
    assert (status.is_endless, status.records_total, status.epoch_text) == (False, 12, "epoch 1/1")
    assert status.share == status.ratio


def test_epochs_without_end_are_seen_one_by_one() -> None:
    about = Schedule(1, "async", 1, epochs=0, lengths=(4,) * 300, partitions=1, workers=2, endless_tasks=5)
    status = seen_of(SimulatedJob(about), now=40.0)
    assert status.is_endless
    assert status.waits_for_data_s is None
    assert status.epoch_text == f"epoch {1 + status.tasks_done // 5}"
    assert status.epoch > 1
    assert (status.records_total, status.tasks_total) == (20 * status.epoch, 5 * status.epoch)
    assert 20 < status.records <= status.records_total
    assert status.share is None


def test_who_is_killed_while_nothing_comes_has_not_failed() -> None:
    """However often: the one after it trains when there is something."""
    faults = tuple(
        Fault(60.0 + 15 * number, "kill", role) for number in range(12) for role in ("w0", "w1", "m")
    )
    files = ((0.0, 3), (400.0, 2))
    job = SimulatedJob(schedule(1, home="machine", files=files, max_step=20, faults=faults)).run()
    assert not [line for line in job.log if "is not replaced" in line]

"""A loss that is NaN or infinite: told, counted, and the end of a job that has asked for it."""

import itertools
import math

import pytest

from edlz.services import strict_json
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.tasks.nonfinite_losses import MOST_NAMED, NonFiniteLosses
from edlz.services.master.core.vocabulary.instructions import Announce, Journal
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.messages import NO_IDENTITY, NonFiniteLoss, WorkerStatus
from tests.simulation.job import Fault, Schedule, SimulatedJob


def status(
    worker: int, count: int, *, boot: int = 0, index: int = 0, first: int | None = None
) -> WorkerStatus:
    return WorkerStatus(
        worker=str(worker),
        boot=boot or worker + 100,
        incarnation=(1, 1),
        seq=1,
        era=NO_IDENTITY,
        nonfinite_losses=count,
        nonfinite_loss=NonFiniteLoss(task=7, index=index, loss=math.nan) if count else None,
        first_nonfinite_loss=None if first is None else NonFiniteLoss(task=7, index=first, loss=math.inf),
    )


class Watch:
    """Losses, what was told of them, and the journal."""

    def __init__(self) -> None:
        self.losses, self.told, self.journal = NonFiniteLosses(), [""], JournalState()
        self.told.clear()

    def take(self, told: WorkerStatus, now: float = 0.0) -> None:
        for instruction in self.losses.take(told, now):
            if isinstance(instruction, Announce):
                assert instruction.level == 30
                self.told.append(instruction.text)
            elif isinstance(instruction, Journal):
                self.journal = strict_json.decode(strict_json.encode(instruction.fields), JournalState)

    def restart(self) -> None:
        self.losses = NonFiniteLosses.of(self.journal.losses)


def test_the_first_is_told_at_once_with_its_place() -> None:
    watch = Watch()
    watch.take(status(2, 0))
    assert watch.told == []
    watch.take(status(2, 1, index=4))
    assert watch.told == ["worker-2: the loss of task 7, minibatch 4 is nan."]
    assert (watch.losses.count, watch.losses.first) == (1, (7, 4))


def test_the_first_is_the_first_though_it_is_heard_of_with_later_ones() -> None:
    watch = Watch()
    watch.take(status(2, 3, index=6, first=4))
    assert watch.told == ["worker-2: the loss of task 7, minibatch 4 is inf."]
    assert (watch.losses.count, watch.losses.first) == (3, (7, 4))


def test_a_job_of_nothing_else_is_no_flood() -> None:
    watch = Watch()
    for second in range(3600):
        for worker in range(20):
            watch.take(status(worker, 10 * (second + 1)), float(second))
    assert len(watch.told) <= MOST_NAMED + 7
    assert "minibatches had a loss that is NaN or infinite; the newest: task 7" in watch.told[-1]
    assert watch.losses.count == 20 * 36000


def test_nothing_new_is_not_told_again() -> None:
    watch = Watch()
    for second in range(3600):
        watch.take(status(0, 3), float(second))
    assert len(watch.told) == 1


def test_a_count_survives_the_master_and_counts_once() -> None:
    watch = Watch()
    watch.take(status(0, 3))
    watch.take(status(1, 5))
    watch.restart()
    assert (watch.losses.count, watch.losses.first) == (8, (7, 0))
    watch.take(status(1, 5))
    assert watch.losses.count == 8
    watch.take(status(1, 2, boot=9))
    assert watch.losses.count == 10


NONFINITE = ((1, 0), (2, 1), (3, 0))


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(5))
def test_a_diverged_job_survives_its_master_and_says_so(mode: str, seed: int) -> None:
    faults = tuple(Fault(6.0 + 4 * n, "kill", "m") for n in range(4))
    schedule = Schedule(
        seed,
        mode,
        2,
        2,
        (4,) * 12,
        2,
        2,
        evaluation_tasks=2,
        evaluation_steps=3,
        nonfinite=NONFINITE,
        faults=faults,
    )
    job = SimulatedJob(schedule).run()
    assert len(job.journal["evaluations"]) > 1
    assert all(math.isnan(metrics["loss"]) for _, metrics in job.journal["evaluations"])
    losses = next(
        process.core.work.losses for process in job.processes.values() if _is_last_master(job, process)
    )
    assert losses.count >= len(NONFINITE)
    assert losses.first in NONFINITE


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(5))
def test_a_job_that_asked_for_it_ends_before_the_gradient_counts(mode: str, seed: int) -> None:
    schedule = Schedule(seed, mode, 2, 2, (4,) * 12, 2, 2, nonfinite=((3, 2),), stops_on_nan=True)
    job = SimulatedJob(schedule).run()
    assert not job.journal["is_complete"]
    failures = [
        process.core.verdict.failure
        for process in job.processes.values()
        if isinstance(process.core, MasterCore)
    ]
    (failure,) = itertools.compress(failures, failures)
    assert failure.text == "--stop_on_nan: the loss is nan in task 3, minibatch 2"
    assert failure.data == "data, records 8..11, epoch 1, minibatch 2"
    assert "kept" not in failure.error  # it may be nothing yet: the end of the job says what is
    for process in job.processes.values():
        if process.role[0] == "p":
            assert process.core.store.counts.of(3) <= 2


def _is_last_master(job: SimulatedJob, process: object) -> bool:
    return process is job.processes[job.address["m"]]

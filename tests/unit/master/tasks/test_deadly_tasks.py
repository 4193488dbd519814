"""Workers that die with a task in hand: whose fault it is, and when it is enough."""

import math
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.tasks.deadly_tasks import DeadlyTasks
from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds
from edlz.services.master.core.tasks.task_queue import TaskQueue
from edlz.services.master.core.vocabulary.records import WorkerEntry
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import NO_IDENTITY, DoneEvaluation, WorkerOrders, WorkerStatus
from tests import builders
from tests.simulation.job import Fault, Schedule, SimulatedJob

KILLED = "killed by signal 9 (SIGKILL)"
QUICK = settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
PLAN = builders.plan(60, mode="async", records_per_task=10, evaluated=20)


class Bench:
    """The deaths of one worker after the other."""

    def __init__(self) -> None:
        self.queue, self.evaluation = TaskQueue(PLAN), EvaluationRounds(PLAN, 0)
        self.deadly_tasks, self.worker = DeadlyTasks(self.queue, self.evaluation), 0

    def die(
        self,
        *holding: int,
        steps: int = 0,
        evaluating: tuple[tuple[int, int], ...] = (),
        reason: str = KILLED,
    ) -> tuple[int | None, int]:
        """A worker dies after so many steps in the newest task; return what it is held against, and how often."""
        self.worker += 1
        last = WorkerEntry(
            incarnation=(1, self.worker),
            seq=1,
            seen_s=0.0,
            answer=WorkerOrders(term=1, seq=1, incarnation=None),
            holding=holding,
            steps=5 + steps,
            has_asked=True,
            evaluating=evaluating,
            steps_before=dict.fromkeys(holding, 5),
        )
        self.deadly_tasks.note(last)
        failed, attempts = self.deadly_tasks.take(str(self.worker), reason, last)
        return (None if failed is None else failed.task), len(attempts or ())


def test_the_first_death_is_free_and_the_fourth_is_enough() -> None:
    bench = Bench()
    assert [bench.die(3) for _ in range(4)] == [(None, 0), (3, 0), (3, 0), (3, 4)]


def test_a_first_death_of_another_reason_is_not_told_with_the_others() -> None:
    bench = Bench()
    bench.die(3, 4, reason="exit code 1")
    assert [bench.die(3, 4), bench.die(4, 3), bench.die(4, 3)] == [(4, 0), (3, 0), (3, 0)]
    assert bench.die(3) == (3, 3)


def test_what_got_on_is_told_without_earlier_deaths() -> None:
    bench = Bench()
    bench.die(3)
    bench.die(3, steps=1)
    assert [bench.die(3) for _ in range(3)] == [(3, 0), (3, 0), (3, 3)]


def test_the_newest_suspect_in_hand_is_the_one_in_work() -> None:
    bench = Bench()
    bench.die(1, 2, 3)
    assert bench.die(1, 2) == (2, 0)
    assert bench.die(5, 3) == (3, 0)  # 5 waits, or it would not have got another one


def test_who_gets_on_is_free() -> None:
    bench = Bench()
    for _ in range(20):
        assert bench.die(3) in [(None, 0), (3, 0)]
        assert bench.die(3) == (3, 0)
        assert bench.die(3, steps=1) == (None, 0)


def test_what_is_done_is_no_suspect() -> None:
    bench = Bench()
    bench.die(3)
    bench.queue.finish(3, 0.0)
    assert bench.queue.suspects == set()
    assert bench.die(3) == (None, 0)
    assert bench.queue.suspects == set()


def test_evaluation_tasks_are_suspects_too() -> None:
    bench = Bench()
    bench.evaluation.open_final(1)
    assert bench.die(3, evaluating=((1, 1), (1, 0))) == (None, 0)
    assert bench.evaluation.has_free_suspect
    assert bench.evaluation.next_lease((1, 9), (), 0.0, is_alone=False) is None
    assert [bench.die(evaluating=((1, 1),)) for _ in range(3)] == [(1, 0), (1, 0), (1, 4)]
    assert bench.die(3) == (3, 0)
    bench.evaluation.report(DoneEvaluation(round=1, task=0, records=10, states={}))
    assert bench.evaluation.suspects == {(1, 1)}


def status(*holding: int, is_waiting: bool = False) -> WorkerStatus:
    return WorkerStatus(
        worker="0",
        boot=1,
        incarnation=(1, 99),
        seq=1,
        era=NO_IDENTITY,
        holding=holding,
        wants_task=True,
        is_waiting=is_waiting,
    )


def test_a_suspect_is_worked_on_alone() -> None:
    bench = Bench()
    bench.die(0)
    assert bench.queue.next_task(status(4), {}, 0.0) is None  # 0 is next, and this worker is at another one
    assert bench.queue.next_task(status(), {}, 0.0) == 0
    assert bench.queue.next_task(status(0), {}, 0.0) is None
    assert bench.queue.next_task(status(0, is_waiting=True), {}, 0.0) == 1
    bench.queue.finish(0, 0.0)
    assert bench.queue.next_task(status(0), {}, 0.0) == 2


# ---------------------------------------------------------------- whole jobs


def poisoned(seed: int, mode: str, slots: int, workers: int, **more: object) -> Schedule:
    return Schedule(seed, mode, slots, 2, (4,) * 12, 2, workers, home="machine", **more)  # type: ignore[arg-type]


def failure_of(job: SimulatedJob) -> FailureView:
    cores = [process.core for process in job.processes.values() if isinstance(process.core, MasterCore)]
    return next(core.verdict.failure for core in cores if core.verdict.failure)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("has_tables", [False, True])
@QUICK
@given(
    seed=st.integers(0, 1000),
    slots=st.integers(1, 4),
    workers=st.integers(1, 3),
    poison=st.tuples(st.integers(0, 11), st.integers(0, 3)),
)
@example(
    seed=0, slots=2, workers=1, poison=(1, 2)
)  # worker-1 ends after a step of task 0, the other one in hand
def test_a_record_that_ends_its_readers_ends_the_job_and_is_named(
    mode: str, has_tables: bool, seed: int, slots: int, workers: int, poison: tuple[int, int]
) -> None:
    schedule = poisoned(seed, mode, slots, workers, has_tables=has_tables, poison=(poison,))
    job = SimulatedJob(schedule).run()
    failure = failure_of(job)
    assert (failure.task, failure.error) == (poison[0], f"its worker ended: {KILLED}")
    lost = [found[1] for line in job.log if (found := re.search(r"worker-(\d+) lost: killed", line))]
    told = re.fullmatch(rf"task {poison[0]} ended its worker (\d) times \(workers ([\d, ]+)\)", failure.text)
    assert told is not None, failure.text
    workers_told = told[2].split(", ")
    assert (
        len(workers_told) == int(told[1]) >= 3
    )  # 4, or a worker seemed to get on: what was before is not told
    assert len(set(workers_told)) == len(workers_told)
    assert set(workers_told) <= set(lost)
    assert workers_told[-1] == lost[-1]
    assert failure.data.startswith("data, records ")
    assert "minibatch" not in failure.data
    assert len(lost) <= 12


@pytest.mark.parametrize("mode", ["sync", "async"])
@QUICK
@given(
    seed=st.integers(0, 1000),
    slots=st.integers(1, 4),
    workers=st.integers(1, 3),
    poison=st.dictionaries(st.integers(0, 11), st.integers(0, 3), max_size=2),
    evaluations=st.sets(st.integers(0, 2), max_size=1),
)
def test_such_a_record_can_be_left_out(
    mode: str, seed: int, slots: int, workers: int, poison: dict[int, int], evaluations: set[int]
) -> None:
    schedule = poisoned(
        seed,
        mode,
        slots,
        workers,
        skips=True,
        poison=tuple(poison.items()),
        poison_evaluations=tuple(evaluations),
        evaluation_tasks=3,
        evaluation_steps=6,
    )
    job = SimulatedJob(schedule).run()
    assert dict(job.journal["ends"]).keys() == poison.keys()
    assert set(job.journal["skipped_evaluations"]) == evaluations


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(4))
def test_machines_that_go_away_all_day_end_no_job(mode: str, seed: int) -> None:
    faults = tuple(Fault(10.0 + 6.2 * n, "kill", f"w{n % 2}") for n in range(40))
    assert all(math.floor(fault.at * 10) % 2 == 0 for fault in faults)
    schedule = Schedule(seed, mode, 2, 2, (12,) * 24, 2, 2, faults=faults)
    assert SimulatedJob(schedule).run().journal["is_complete"]

"""What a worker has in hand, and whether it has room for more."""

import pytest

from edlz.services.errors import LocalProtocolError
from edlz.services.protocol.messages import Exchanged
from edlz.services.protocol.plan import Plan, Shard
from edlz.services.worker.core.held_tasks import LASTING, STEPS, Phase, Run, Runs


def make_runs(mode: str, *tasks: int, slots: int = 2) -> Runs:
    plan = Plan(
        mode=mode,
        seed=0,
        shards=(Shard(name="data", first=0, count=8),),
        records_per_task=1,
        minibatch_size=1,
        epochs=1,
        slots=slots,
    )
    runs = Runs(plan)
    for task in tasks:
        runs.take(task)
    return runs


def run_of(runs: Runs, task: int) -> Run:
    run = runs.get(task)
    assert run is not None
    return run


def lead(runs: Runs, task: int, *phases: Phase) -> None:
    for phase in phases:
        run_of(runs, task).enter(phase)


TO_COMPUTING = (Phase.PULLING, Phase.READY, Phase.COMPUTING)


def test_tasks_that_follow_one_another_share_a_lane() -> None:
    assert [run.lane for run in make_runs("async", 0, 1, 5)] == [0, 0, 0]
    assert [run.lane for run in make_runs("sync", 0, 1, 2, 3)] == [0, 1, 0, 1]


def test_each_attempt_has_a_number_of_its_own() -> None:
    runs = make_runs("async", 0)
    first = run_of(runs, 0).attempt
    runs.drop(0)
    assert len({first, runs.new_attempt(), runs.take(0).attempt}) == 3


def test_async_there_is_one_task_in_reserve() -> None:
    runs = make_runs("async")
    assert runs.wants_task
    runs.take(0)
    assert not runs.wants_task
    lead(runs, 0, Phase.PULLING)
    assert runs.wants_task
    runs.take(1)
    assert not runs.wants_task
    run_of(runs, 0).back_off(9, 0.0, is_held=True, is_lost=True)
    assert not runs.wants_task, "the other one begins first"
    lead(runs, 1, Phase.PULLING)
    assert runs.wants_task


def test_sync_a_worker_that_only_waits_takes_another_slot() -> None:
    runs = make_runs("sync", 0, 2)
    lead(runs, 0, *TO_COMPUTING)
    assert not runs.wants_task
    lead(runs, 0, Phase.PUSHING, Phase.STAGED)
    assert runs.wants_task


def test_sync_the_earliest_round_is_that_of_what_is_not_finished() -> None:
    runs = make_runs("sync", 0, 1, 2)
    assert [run.task for run in runs.of_earliest_round()] == [0, 1]
    for task in (0, 1):
        lead(runs, task, Phase.PULLING, Phase.REPORTING)
    assert [run.task for run in runs.of_earliest_round()] == [2]
    lead(runs, 2, Phase.PULLING, Phase.REPORTING)
    assert runs.of_earliest_round() == []


def test_sync_runs_of_a_step_are_of_one_round_and_version() -> None:
    runs = make_runs("sync", 0, 1, 2)
    assert [run.task for run in runs.of_step(run_of(runs, 0))] == [0, 1]
    run_of(runs, 1).version = 1
    assert [run.task for run in runs.of_step(run_of(runs, 0))] == [0]


# ---------------------------------------------------------------- phases


ANSWER = Exchanged(incarnation=(1, 1), mark=0, finished=False, version=3)


@pytest.mark.parametrize(
    ("before", "after"),
    [(before, after) for before in Phase for after in Phase if after not in STEPS.after[before]],
)
def test_a_step_that_cannot_be_raises_and_changes_nothing(before: Phase, after: Phase) -> None:
    run = Run(task=0, attempt=1, lane=0, phase=before, acks={0}, answers={0: ANSWER}, ahead={1: {}})
    with pytest.raises(LocalProtocolError, match=f"a task that was {before.value} cannot be {after.value}"):
        run.enter(after)
    assert run == Run(task=0, attempt=1, lane=0, phase=before, acks={0}, answers={0: ANSWER}, ahead={1: {}})


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_is_reached_and_left(phase: Phase) -> None:
    assert STEPS.after[phase]
    assert phase is STEPS.first or any(phase in after for after in STEPS.after.values())


@pytest.mark.parametrize(
    ("before", "after"), [(before, after) for before in Phase for after in STEPS.after[before]]
)
def test_a_task_forgets_what_says_nothing_in_its_next_phase(before: Phase, after: Phase) -> None:
    run = Run(task=0, attempt=1, lane=0, phase=before, acks={0}, answers={0: ANSWER}, ahead={1: {}})
    run.enter(after)
    for name, phases in LASTING.items():
        assert after in phases or not getattr(run, name), name
    assert bool(run.answers) == (after in LASTING["answers"])


def test_a_pause_ends_with_the_next_attempt() -> None:
    run = Run(task=0, attempt=1, lane=0, phase=Phase.PULLING)
    run.back_off(2, 10.0, is_held=True, is_lost=False)
    assert run.is_held
    run.check_invariants()
    run.abandon(Phase.PULLING, 3)
    assert not run.is_held
    run.check_invariants()

"""What a worker has in hand, and whether it has room for more."""

from edlz.services.protocol.plan import Plan, Shard
from edlz.services.worker.core.held_tasks import Phase, Run, Runs


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
    run_of(runs, 0).phase = Phase.PULLING
    assert runs.wants_task
    runs.take(1)
    assert not runs.wants_task
    run_of(runs, 0).is_held = True
    assert not runs.wants_task, "the other one begins first"
    run_of(runs, 1).phase = Phase.PULLING
    assert runs.wants_task


def test_sync_a_worker_that_only_waits_takes_another_slot() -> None:
    runs = make_runs("sync", 0, 2)
    run_of(runs, 0).phase = Phase.COMPUTING
    assert not runs.wants_task
    run_of(runs, 0).phase = Phase.STAGED
    assert runs.wants_task


def test_sync_the_earliest_round_is_that_of_what_is_not_finished() -> None:
    runs = make_runs("sync", 0, 1, 2)
    assert [run.task for run in runs.of_earliest_round()] == [0, 1]
    for task in (0, 1):
        run_of(runs, task).phase = Phase.REPORTING
    assert [run.task for run in runs.of_earliest_round()] == [2]
    run_of(runs, 2).phase = Phase.REPORTING
    assert runs.of_earliest_round() == []


def test_sync_runs_of_a_step_are_of_one_round_and_version() -> None:
    runs = make_runs("sync", 0, 1, 2)
    assert [run.task for run in runs.of_step(run_of(runs, 0))] == [0, 1]
    run_of(runs, 1).version = 1
    assert [run.task for run in runs.of_step(run_of(runs, 0))] == [0]

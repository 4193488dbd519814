"""Jobs that predict, under faults: each task's predictions come to be once, and whole ones are told last."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edlz.services.master.core.predictions import SAVE_EVERY_S, Predictions
from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds
from edlz.services.master.core.vocabulary.instructions import Journal, PublishPredictions
from edlz.services.master.core.vocabulary.records import JournalState, PredictedTask
from edlz.services.protocol.messages import DoneEvaluation, PartFile
from tests import builders
from tests.schedules import schedules, without_training
from tests.simulation.job import Fault, Schedule, SimulatedJob
from tests.simulation.schedule import PREDICTION_MOMENTS

QUICK = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def predicting(seed: int = 1, mode: str = "sync", **changes: Any) -> Schedule:
    values: dict[str, Any] = {"partitions": 2, "workers": 2, "evaluation_tasks": 6, "begins_from": 30}
    values |= {"predicts": True, **changes}
    partitions, workers = values.pop("partitions"), values.pop("workers")
    return Schedule(seed, mode, 2, 0, (), partitions, workers, **values)


def analyzing(seed: int = 1, **changes: Any) -> Schedule:
    about = {"partitions": 1, "begins_from": 0, "predicts": False, "analyzes": True}
    return predicting(seed, **about, **changes)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("has_tables", [False, True])
@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_undisturbed(mode: str, has_tables: bool, partitions: int) -> None:
    job = SimulatedJob(predicting(mode=mode, has_tables=has_tables, partitions=partitions)).run()
    assert set(job.predicted.values()) == {1}


@pytest.mark.parametrize("mode", ["sync", "async"])
@QUICK
@given(data=st.data())
def test_each_task_has_one_file_whatever_is_lost(mode: str, data: st.DataObject) -> None:
    SimulatedJob(without_training(data.draw(schedules(mode)), begins_from=30, predicts=True)).run()


@pytest.mark.parametrize("moment", PREDICTION_MOMENTS)
@pytest.mark.parametrize("role", ["m", "p1", "w0"])
@pytest.mark.parametrize("kind", ["kill", "stall"])
def test_a_loss_at_each_moment(moment: str, role: str, kind: str) -> None:
    for seed in range(2):
        faults = tuple(Fault(at, kind, role, 20, during=moment) for at in (0.0, 0.6)[: 1 + seed])
        SimulatedJob(predicting(seed, "async" if seed % 2 else "sync", faults=faults)).run()


@pytest.mark.parametrize("moment", PREDICTION_MOMENTS)
@pytest.mark.parametrize("role", ["m", "p0", "w0"])
def test_an_analysis_is_whole_whoever_is_lost_at_each_moment(moment: str, role: str) -> None:
    SimulatedJob(analyzing(faults=(Fault(0.0, "kill", role, 20, during=moment),))).run()


@QUICK
@given(data=st.data())
def test_each_task_of_an_analysis_has_one_file_whatever_is_lost(data: st.DataObject) -> None:
    SimulatedJob(without_training(data.draw(schedules("sync")), predicts=False, analyzes=True)).run()


def test_a_file_of_an_analysis_that_is_gone_is_written_again() -> None:
    job = SimulatedJob(analyzing(lost_files=(1, 4))).run()
    assert job.predicted[1] == 2
    assert any("analyzed again" in line for line in job.log)


def test_a_killed_master_has_little_done_again() -> None:
    """What it had noted is not predicted again: only what was in hand or done within the last seconds is."""
    tasks = 60
    job = SimulatedJob(
        predicting(evaluation_tasks=tasks, faults=(Fault(40, "kill", "m", during="first part"),))
    ).run()
    again = sum(job.predicted.values()) - tasks
    assert job.journal["term"] == 2
    assert again <= 8
    first, *later = [line for line in job.log if "prediction begins" in line]
    assert "0 tasks done" in first
    assert later, "the next master has begun too"
    assert not any(", 0 tasks done" in line for line in later)


@pytest.mark.parametrize("seed", range(3))
def test_what_may_be_published_is_not_predicted_again(seed: int) -> None:
    """A manifest that is there says what files hold: another machine may write other last bits."""
    job = SimulatedJob(predicting(seed, faults=(Fault(0.0, "kill", "m", during="published"),))).run()
    assert job.journal["term"] == 2
    assert set(job.predicted.values()) == {1}


@pytest.mark.parametrize("has_restart", [False, True])
def test_a_file_that_is_gone_is_written_again(has_restart: bool) -> None:
    faults = (Fault(0.0, "kill", "m", during="publishing"),) if has_restart else ()
    job = SimulatedJob(predicting(lost_files=(1, 4), faults=faults)).run()
    assert job.predicted[1] >= 2


def test_tasks_that_always_fail_are_left_out_and_named() -> None:
    job = SimulatedJob(predicting(skips=True, bad_evaluations=(2,))).run()
    assert job.published is not None
    assert job.published["skipped"] == (2,)
    assert any("prediction task 2 is skipped" in line for line in job.log)


def test_a_job_whose_tasks_all_fail_says_so_in_its_folder() -> None:
    job = SimulatedJob(predicting(skips=True, evaluation_tasks=2, bad_evaluations=(0, 1))).run()
    assert job.published is not None
    assert (job.published["tasks"], job.published["skipped"]) == ((), (0, 1))


class Bench:
    """The books of a job with three tasks."""

    def __init__(self, *predicted: PredictedTask, output: str = "out") -> None:
        plan = builders.plan(records_per_task=4, minibatch_size=4, epochs=0, evaluated=12, predicts=True)
        self.evaluation = EvaluationRounds(plan, 0)
        self.books = Predictions(
            plan, JournalState(predicted=predicted), self.evaluation, has_files=bool(output)
        )
        self.evaluation.open_final(7)

    def report(self, task: int) -> None:
        part = PartFile(bytes=10 + task, checksum=f"c{task}")
        done = DoneEvaluation(round=1, task=task, records=4, states={}, part=part)
        if self.evaluation.report(done):
            self.books.take(done)


def entry(task: int) -> PredictedTask:
    return PredictedTask(task, 4, 10 + task, f"c{task}")


def test_what_is_done_is_noted_now_and_then_in_the_order_of_tasks() -> None:
    bench = Bench()
    assert bench.books.on_tick(10.0) == []
    bench.report(2)
    bench.report(0)
    bench.report(0)
    assert bench.books.on_tick(10.0 + SAVE_EVERY_S / 2) == []
    assert bench.books.on_tick(10.0 + SAVE_EVERY_S) == [Journal({"predicted": (entry(0), entry(2))})]
    assert bench.books.on_tick(20.0) == []
    bench.report(1)
    assert bench.books.save() == [Journal({"predicted": (entry(0), entry(1), entry(2))})]


def test_what_is_noted_is_not_leased_again() -> None:
    bench = Bench(entry(0), entry(2))
    lease = bench.evaluation.next_lease((1, 1), (), 0.0)
    assert lease is not None
    assert (lease.task, lease.attempt) == (1, 0)
    assert bench.evaluation.next_lease((1, 2), (), 0.0) is None
    bench.evaluation.release((1, 1))
    again = bench.evaluation.next_lease((1, 2), (), 1.0)
    assert again is not None
    assert (again.task, again.attempt) == (1, 1)
    bench.report(1)
    assert bench.evaluation.is_idle
    whole = (entry(0), entry(1), entry(2))
    assert bench.books.advance(7)[-1:] == [PublishPredictions(7, whole)]
    assert bench.books.advance(7) == [], "it is under way"
    bench.books.on_published(())
    assert bench.books.is_over


def test_outputs_that_the_users_code_takes_are_not_published() -> None:
    bench = Bench(output="")
    for task in range(3):
        bench.report(task)
    assert bench.books.advance(7) == []
    assert bench.books.is_over

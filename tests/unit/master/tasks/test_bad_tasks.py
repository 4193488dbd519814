"""Where tasks that always fail are ended, and what is left out of the evaluation."""

import msgspec
import numpy as np
import pytest

from edlz.services.master.core.tasks.bad_tasks import BadTasks
from edlz.services.master.core.tasks.evaluation_rounds import EvaluationRounds
from edlz.services.master.core.tasks.task_failures import failure_of_task
from edlz.services.master.core.tasks.task_queue import TaskQueue
from edlz.services.master.core.vocabulary.instructions import Announce, Journal
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.ledger import Ledger, TaskSet
from edlz.services.protocol.messages import (
    ClosedTask,
    DoneEvaluation,
    EvaluationResult,
    Exchanged,
    FailedTask,
    Lease,
    PartitionAddress,
    PartitionOrders,
    PartitionStatus,
    Push,
)
from edlz.services.ps.core.task_ends import TaskEnds
from edlz.services.worker.core.asynchronous import AsynchronousTraining
from edlz.services.worker.core.instructions import AskPartition, Compute, Outcome
from edlz.services.worker.core.partition_directory import PartitionDirectory
from edlz.services.worker.core.requests import Requests
from tests import builders
from tests.statuses import partition_status

PLAN = builders.plan(40, mode="async", records_per_task=10, minibatch_size=2, evaluated=20)


class Bench:
    """The cores around a job's skips, and two partitions."""

    def __init__(self, *, is_allowed: bool = True, journal: JournalState | None = None) -> None:
        self.queue, self.evaluation = TaskQueue(PLAN), EvaluationRounds(PLAN, 0)
        about = (journal or JournalState(), self.queue, self.evaluation)
        self.bad_tasks = BadTasks(PLAN, *about, first_number=7, is_allowed=is_allowed)

    def fail(self, task: int, *indices: int, kind: str = "training") -> bool:
        attempts = [(str(i), failed(task, index, kind)) for i, index in enumerate(indices)]
        return self.bad_tasks.take(attempts)

    def decide(self, *standings: tuple[int, bool] | None) -> list[object]:
        return list(self.bad_tasks.advance([status_of(self.bad_tasks.closing, each) for each in standings]))


def failed(task: int, index: int, kind: str = "training", round: int = 0) -> FailedTask:  # noqa: A002
    return FailedTask(
        kind=kind, task=task, index=index, error="ValueError: no", where="", traceback="", round=round
    )


def status_of(closing: tuple[tuple[int, int], ...], standing: tuple[int, bool] | None) -> PartitionStatus:
    closed = ()
    if standing is not None:
        mark, is_finished = standing
        closed = tuple(ClosedTask(task=t, number=n, mark=mark, finished=is_finished) for t, n in closing)
    return partition_status(closed=closed)


@pytest.mark.parametrize(
    ("indices", "marks", "end"),
    [((2, 2, 2), (0, 2), 2), ((3, 1, 2), (0, 0), 1), ((3, 1, 2), (2, 0), 2), ((0, 0, 0), (4, 3), 4)],
)
def test_a_task_ends_at_its_smallest_failure_or_at_the_greatest_mark(
    indices: tuple[int, ...], marks: tuple[int, ...], end: int
) -> None:
    bench = Bench()
    assert bench.fail(1, *indices)
    assert bench.bad_tasks.closing == ((1, 7),)
    out = bench.decide(*((mark, False) for mark in marks))
    assert out[0] == Journal({"ends": ((1, end),)})
    assert isinstance(out[1], Announce)
    assert out[1].level == 30
    first = PLAN.task_range(1).first
    assert f"task 1 is skipped from minibatch {end} on, data, records {first}..{first + 9}" in out[1].text
    assert "ValueError: no" in out[1].text
    assert bench.bad_tasks.closing == ()
    assert bench.bad_tasks.of((0, 1)) == ((1, end),)
    assert (bench.bad_tasks.minibatches, bench.bad_tasks.records) == (5 - end, 10 - 2 * end)


def test_it_is_decided_when_all_partitions_have_closed_the_task() -> None:
    bench = Bench()
    bench.fail(1, 2, 2, 2)
    assert bench.decide((0, False), None) == []
    stale = msgspec.structs.replace(
        status_of((), None), closed=(ClosedTask(task=1, number=6, mark=0, finished=False),)
    )
    assert bench.bad_tasks.advance([stale, stale]) == []
    assert bench.decide((0, False), (0, False)) != []


def test_a_later_failure_meanwhile_counts_for_the_place() -> None:
    bench = Bench()
    attempts = [("0", failed(1, 2)) for _ in range(3)]
    bench.bad_tasks.take(attempts)
    attempts.append(("1", failed(1, 1)))
    assert bench.bad_tasks.take(attempts)
    assert bench.decide((0, False), (1, False))[0] == Journal({"ends": ((1, 1),)})


def test_a_task_that_was_finished_meanwhile_is_tried_once_more() -> None:
    bench = Bench()
    for _ in range(2):
        assert bench.bad_tasks.hopeless is None
        bench.fail(1, 2, 2, 2)
        assert bench.decide((0, True), (2, False)) == []
        assert bench.bad_tasks.closing == ()
    assert bench.bad_tasks.hopeless is not None


def test_a_task_that_is_done_meanwhile_needs_no_end() -> None:
    bench = Bench()
    bench.fail(1, 2, 2, 2)
    bench.queue.done = TaskSet((0, 2))
    assert bench.decide(None, None) == []
    assert bench.bad_tasks.closing == ()


def test_an_end_is_final() -> None:
    bench = Bench(journal=JournalState(ends=((1, 3),), skipped_evaluations=(0,)))
    assert bench.bad_tasks.is_known(failed(1, 3)), "who failed there did not know yet"
    assert not bench.bad_tasks.is_known(failed(1, 2))
    assert not bench.fail(1, 2, 2, 2), "some partition has it, so somebody could compute it"
    assert bench.evaluation.skipped == {0}


def test_nothing_is_skipped_without_the_flag() -> None:
    bench = Bench(is_allowed=False)
    assert not bench.fail(1, 2, 2, 2)
    assert not bench.fail(0, 0, 0, 0, kind="evaluation")
    assert bench.bad_tasks.closing == ()


def test_an_evaluation_task_that_always_fails_counts_as_no_records() -> None:
    bench = Bench()
    bench.evaluation.open_final(9)
    number = next(iter(bench.evaluation._rounds))
    states = {"n": [np.array([10.0])]}
    bench.evaluation.report(DoneEvaluation(round=number, task=1, records=10, states=states))
    assert bench.evaluation.conclusion((1, 1), 0.0) is None
    assert bench.fail(0, 0, 0, 0, kind="evaluation")
    journal, announce = bench.decide(None, None)
    assert journal == Journal({"skipped_evaluations": (0,)})
    assert isinstance(announce, Announce)
    assert "evaluation task 0 is skipped, test, records 0..9, evaluation" in announce.text
    bench.evaluation.check_invariants()
    assert bench.evaluation.conclusion((1, 1), 0.0) is not None
    finished = bench.evaluation.conclude(EvaluationResult(round=number, metrics={"n": 10.0}))
    assert finished is not None
    assert finished.records == 10
    bench.evaluation.open_final(10)
    lease = bench.evaluation.next_lease((1, 1), (), 0.0)
    assert lease is not None
    assert lease.task == 1, "it is left out of later rounds as well"


def test_without_any_evaluation_task_there_is_no_round() -> None:
    bench = Bench()
    bench.evaluation.open_final(9)
    for task in (0, 1):
        bench.fail(task, 0, 0, 0, kind="evaluation")
    bench.decide(None, None)
    assert bench.evaluation.is_idle
    assert not bench.evaluation.has_data


def test_the_failure_says_how_to_go_on() -> None:
    at = msgspec.structs.replace(failed(1, 2), where="model.py:7 in feed")
    attempts = [("0", at), ("1", at), ("0", at)]
    job = builders.job(PLAN, run="1", partitions=2)
    view = failure_of_task(job, attempts, skips=False)
    assert view.text == "task 1 raised the same error 3 times (workers 0, 1, 0)"
    assert view.task == 1
    assert view.help.splitlines() == [
        "correct feed(), then: edlz resume j",
        "or leave these records out: edlz resume j --skip_bad_tasks",
    ]
    assert failure_of_task(job, attempts, skips=True).help == "correct feed(), then: edlz resume j"
    advised = [("0", msgspec.structs.replace(at, help="raise input_dim"))]
    told = failure_of_task(job, advised, skips=True).help
    assert told == "raise input_dim\ncorrect feed(), then: edlz resume j"


# ---------------------------------------------------------------- partitions


def push(index: int, *, is_last: bool = False, is_empty: bool = False) -> Push:
    gradient = None if is_empty else np.zeros(1, np.float32)
    return Push(
        task=1, index=index, is_last=is_last, learning_rate=0.1, gradient=gradient, state=None, counters=None
    )


def ledger_at(mark: int, *, is_finished: bool = False) -> Ledger:
    ledger = Ledger()
    for index in range(mark):
        ledger.note(1, index, is_last=is_finished and index == mark - 1, is_empty=False)
    return ledger


def orders(**fields: object) -> PartitionOrders:
    return PartitionOrders(term=1, number=1, incarnation=(1, 1), **fields)  # type: ignore[arg-type]


def test_what_was_computed_behind_the_end_of_a_task_is_not_pushed() -> None:
    """The master ends a task before the minibatch that a worker is at, which has heard nothing for a while."""
    partitions = PartitionDirectory()
    partitions.count = 1
    partitions.learn((PartitionAddress(index=0, incarnation=(1, 1), endpoint="p0", has_base=True),))
    requests = Requests(PLAN, partitions, 1, lambda index, key, body: AskPartition(index, "p0", key, body))
    training = AsynchronousTraining(PLAN, partitions, requests, False, lambda now: [], looks_ahead=False)
    training.take(Lease(task=0))
    (pull,) = training.schedule()
    assert isinstance(pull, AskPartition)
    assert isinstance(pull.key, tuple)
    zero = np.zeros(1, np.float32)
    stand = Exchanged(incarnation=(1, 1), mark=2, finished=False, version=7, dense=zero)
    training.on_answer(0, pull.key[1:], stand, 0.0)
    (compute,) = training.schedule()
    assert isinstance(compute, Compute)
    assert compute.index == 2
    training.end([(0, 2)])
    push = Push(task=0, index=2, is_last=True, learning_rate=1.0, gradient=zero, state=None, counters=None)
    out = training.on_computed(0, compute.attempt, Outcome(is_last=True, pushes=(push,)), 0.0)
    assert [each.body.push for each in out if isinstance(each, AskPartition)] == [
        None
    ]  # where does it stand?


def test_a_life_takes_no_pushes_before_its_first_orders() -> None:
    endings = TaskEnds(are_known=False)
    assert endings.bars(push(0), ledger_at(0))
    assert not endings.obey(orders())
    assert endings.are_none
    assert not endings.bars(push(0), ledger_at(0))


def test_a_closed_task_takes_what_it_has_and_no_more() -> None:
    endings = TaskEnds(are_known=True)
    assert endings.obey(orders(closing=((1, 7),)))
    assert not endings.obey(orders(closing=((1, 7),))), "the same wish again is no news"
    assert endings.bars(push(2), ledger_at(2))
    assert not endings.bars(push(1), ledger_at(2))
    assert not endings.bars(push(2), ledger_at(3, is_finished=True))
    endings.obey(orders())
    assert not endings.bars(push(2), ledger_at(2))


def test_an_ended_task_takes_what_is_before_its_end_and_the_empty_one_there() -> None:
    endings = TaskEnds(are_known=True)
    endings.obey(orders(ends=((1, 2),)))
    endings.obey(orders())  # an end is never taken back
    assert not endings.bars(push(1), ledger_at(1))
    assert endings.bars(push(1, is_last=True), ledger_at(1)), "who sent it does not know of the end"
    assert endings.bars(push(2), ledger_at(2))
    assert not endings.bars(push(2, is_last=True, is_empty=True), ledger_at(2))

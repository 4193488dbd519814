"""Evaluation rounds: each task once, sums in task order, metrics in version order."""

import msgspec
import numpy as np
import pytest

from edlz.services.master.core.tasks.evaluation_rounds import LEASE_TIMEOUT_S, EvaluationRounds, merge_states
from edlz.services.protocol.concluded_rounds import ShownRound
from edlz.services.protocol.messages import DoneEvaluation, EvaluationResult
from edlz.services.protocol.plan import Shard
from tests import builders

A, B = (1, 1), (1, 2)
PLAN = builders.plan(records_per_task=2, evaluated=5)

TRAINING = msgspec.structs.replace(PLAN, shards=(Shard(name="t", first=0, count=5),))


def done(round_: int, task: int, value: float = 1.0) -> DoneEvaluation:
    return DoneEvaluation(round=round_, task=task, records=1, states={"m": [np.array([value])]})


def lease_all(rounds: EvaluationRounds) -> list[tuple[int, int]]:
    leases = []
    while (lease := rounds.next_lease(A, (), 0.0)) is not None:
        leases.append((lease.round, lease.task))
    return leases


def conclude_final(rounds: EvaluationRounds) -> None:
    for task in range(3):
        rounds.report(done(1, task))
    assert rounds.conclude(EvaluationResult(round=1, metrics={"m": 0.5})) is not None


def test_a_round_opens_once_for_each_trigger() -> None:
    rounds = EvaluationRounds(PLAN, every=50)
    assert [rounds.on_version(v) for v in (10, 50, 51, 130, 149, 150)] == [None, 50, None, 100, None, 150]
    assert lease_all(rounds) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]


def test_rounds_in_work_begin_again_when_the_model_has_gone_back() -> None:
    rounds = EvaluationRounds(TRAINING, every=50)
    assert rounds.on_version(50) == 50
    rounds.report(done(1, 0))
    rounds.open_final(70)
    rounds.begin_again()
    assert rounds.is_idle
    assert not rounds.report(done(1, 1)), "it may be of what the model was on its way back"
    assert [rounds.on_version(v) for v in (30, 50, 60)] == [None, 50, None]
    assert lease_all(rounds) == [(3, 0), (3, 1), (3, 2)]


def test_a_final_round_of_another_model_is_repeated() -> None:
    rounds = EvaluationRounds(TRAINING, every=0)
    rounds.open_final(7)
    conclude_final(rounds)
    rounds.begin_again()
    assert rounds.concluded_version == 7
    rounds.begin_again(is_another=True)
    assert rounds.concluded_version < 7


def test_nothing_is_evaluated_behind_the_final_round() -> None:
    """On the way back to a version whose metrics are known, older ones would be the last to be told."""
    rounds = EvaluationRounds(TRAINING, every=2)
    rounds.skip_to(2)  # the round of v4 was in work when the master before died
    rounds.open_final(5)
    conclude_final(rounds)
    rounds.begin_again()
    assert [rounds.on_version(v) for v in (2, 4, 5)] == [None, None, None]
    assert rounds.on_version(6) == 6


def test_a_final_round_is_repeated_when_a_task_ends_elsewhere() -> None:
    for plan, again in ((TRAINING, True), (PLAN, False)):
        rounds = EvaluationRounds(plan, every=0)
        rounds.open_final(7)
        conclude_final(rounds)
        rounds.on_other_history()
        assert (rounds.concluded_version < 7) == again


def test_what_does_not_train_never_goes_back() -> None:
    rounds = EvaluationRounds(PLAN, every=0)
    rounds.open_final(7)
    rounds.begin_again()
    assert lease_all(rounds) == [(1, 0), (1, 1), (1, 2)]


def test_the_first_report_of_a_task_counts() -> None:
    rounds = EvaluationRounds(PLAN, every=0)
    rounds.open_final(7)
    for task, value in ((0, 1.0), (0, 9.0), (2, 3.0), (1, 2.0), (1, 9.0)):
        rounds.report(done(1, task, value))
    conclusion = rounds.conclusion(A, 0.0)
    assert conclusion is not None
    assert conclusion.states["m"][0].tolist() == [6.0]
    assert rounds.conclusion(B, 1.0) is None


def test_a_lost_concluder_is_replaced_and_a_second_result_ignored() -> None:
    rounds = EvaluationRounds(PLAN, every=0)
    rounds.open_final(7)
    for task in range(3):
        rounds.report(done(1, task))
    assert rounds.conclusion(A, 0.0) is not None
    rounds.release(A)
    assert rounds.conclusion(B, 1.0) is not None
    finished = rounds.conclude(EvaluationResult(round=1, metrics={"m": 0.5}))
    assert finished is not None
    assert (finished.version, finished.is_final, finished.records) == (7, True, 3)
    assert rounds.conclude(EvaluationResult(round=1, metrics={"m": 0.9})) is None
    assert rounds.is_idle


def test_a_lost_workers_tasks_are_leased_again() -> None:
    rounds = EvaluationRounds(PLAN, every=0)
    rounds.open_final(7)
    lease_all(rounds)
    assert rounds.next_lease(B, (), 1.0) is None
    rounds.release(A)
    again = rounds.next_lease(B, (), 1.0)
    assert again is not None
    assert again.task == 0


def test_a_lease_ends_by_time_or_when_its_holder_does_not_hold_it() -> None:
    rounds = EvaluationRounds(PLAN, every=0)
    rounds.open_final(7)
    for at in (0.0, 10.0, 20.0):
        assert rounds.next_lease(A, (), at) is not None
    assert rounds.next_lease(A, ((1, 0),), LEASE_TIMEOUT_S + 5) is None  # its own
    late = rounds.next_lease(B, (), LEASE_TIMEOUT_S + 5)
    assert late is not None
    assert late.task == 0
    rounds.reconcile(A, ((1, 1),))
    left = rounds.next_lease(B, ((1, 0),), LEASE_TIMEOUT_S + 5)
    assert left is not None
    assert left.task == 2
    rounds.report(done(1, 1))
    assert rounds.next_lease(B, ((1, 0), (1, 2)), 10 * LEASE_TIMEOUT_S) is None
    rounds.check_invariants()


def test_a_round_of_the_final_version_is_the_final_one() -> None:
    rounds = EvaluationRounds(PLAN, every=10)
    rounds.on_version(20)
    rounds.open_final(20)
    assert {round_ for round_, _ in lease_all(rounds)} == {1}


def test_states_of_other_metrics_or_shapes_cannot_be_added() -> None:
    with pytest.raises(ValueError, match="cannot be added"):
        merge_states([{"a": [np.zeros(1)]}, {"b": [np.zeros(1)]}])
    with pytest.raises(ValueError, match="differ"):
        merge_states([{"a": [np.zeros(1)]}, {"a": [np.zeros(2)]}])


def test_a_round_whose_version_is_not_there_is_not_leased() -> None:
    rounds = EvaluationRounds(PLAN, every=0)
    shown = ShownRound(version=3, loss=0.5, is_end=False, before=())
    number = rounds.open_shown(shown, is_of_version=True)
    rounds.suspects = {(number, 1)}
    rounds.put_off(number)
    assert rounds.next_lease(A, (), 0.0) is None
    assert not rounds.has_free_suspect  # it keeps nobody from training, without which the version never comes
    rounds.resume(number)
    assert rounds.has_free_suspect
    lease = rounds.next_lease(A, (), 0.0)
    assert lease is not None
    assert (lease.round, lease.version) == (number, 3)


def test_a_second_task_in_hand_is_none_that_somebody_else_could_have() -> None:
    rounds = EvaluationRounds(PLAN, every=50)
    rounds.on_version(50)
    first = rounds.next_lease(A, (), 0.0)
    assert first is not None
    ahead = rounds.next_lease(A, ((1, first.task),), 0.0, wanted_by=2)
    assert (first.task, ahead and ahead.task) == (0, 1)
    assert rounds.next_lease(A, ((1, 0), (1, 1)), 0.0, wanted_by=2) is None
    last = rounds.next_lease(B, (), 0.0)
    assert last is not None
    assert last.task == 2

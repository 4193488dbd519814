"""Answers that the master holds until it has something to say, so that nobody need ask again and again."""

from typing import Any

import msgspec
import pytest

from edlz.services.master.core.partition_answers import BARRIER_S
from edlz.services.master.core.vocabulary.inputs import Tick
from edlz.services.master.core.vocabulary.instructions import Reply
from edlz.services.master.core.worker_answers import IDLE_S
from edlz.services.protocol.concluded_rounds import CallbackNeeds, Decision
from edlz.services.protocol.messages import EvaluationResult, Failure
from edlz.services.protocol.milestones import Milestones
from tests.unit.master.asked_master import AskedMaster

DECIDING = CallbackNeeds(runs=True, decides=True)


def idle(master: AskedMaster, name: str, **fields: Any) -> dict[str, Any]:
    """Return the fields of a worker that has nothing in hand, and knows where the partitions are."""
    return {"wants_task": True, "wants_evaluation": True, "can_wait": True} | {
        "address_list": master.core.partitions.address_list,
        **fields,
    }


def ask(master: AskedMaster, name: str, **fields: Any) -> Any:
    return master.worker(name, **idle(master, name, **fields))[0]


def replies(instructions: list[Any]) -> dict[Any, Any]:
    return {each.to: each.body for each in instructions if isinstance(each, Reply)}


def with_all_leased(tasks: int = 1) -> AskedMaster:
    """A master that has leased all that there is to a."""
    master = AskedMaster(tasks=tasks)
    for count in range(tasks):
        assert master.worker("a", wants_task=True, holding=tuple(range(count)))[0].lease is not None
    return master


def test_an_idle_worker_is_answered_when_there_is_work() -> None:
    master = with_all_leased()
    assert ask(master, "b") is None
    _, instructions = master.worker("a")  # it holds nothing any more
    assert replies(instructions)["b"].lease.task == 0


def test_work_for_one_goes_to_the_one_who_has_waited_longest() -> None:
    master = with_all_leased()
    assert [ask(master, name) for name in "bcd"] == [None, None, None]
    assert set(replies(master.worker("a")[1])) == {"a", "b"}


def test_there_is_an_answer_in_time_to_know_that_it_lives() -> None:
    master = with_all_leased()
    assert ask(master, "b") is None
    master.now = 0.9 * IDLE_S
    assert not replies(master.feed(Tick()))
    master.now = IDLE_S
    answer = replies(master.feed(Tick()))["b"]
    assert (answer.lease, answer.stop) == (None, False)
    assert not replies(master.feed(Tick()))


def test_a_repeated_ask_is_answered_once_where_it_came_last() -> None:
    master = with_all_leased()
    status = master.status_of("b", **idle(master, "b"))
    assert master.ask(status, to="b")[0] is None
    assert master.ask(status, to="b again")[0] is None
    answered = replies(master.worker("a")[1])
    assert answered["b again"].lease.task == 0
    assert "b" not in answered
    assert master.ask(status, to="b")[0] == answered["b again"]  # the same seq, the same answer


def test_a_later_ask_takes_the_place_of_one_that_is_held() -> None:
    master = with_all_leased()
    assert ask(master, "b") is None
    assert master.ask(master.status_of("b", **idle(master, "b")), to="b later")[0] is None
    assert set(replies(master.worker("a")[1])) == {"a", "b later"}


def test_a_worker_with_something_in_hand_is_answered_at_once() -> None:
    master = with_all_leased()
    assert ask(master, "b", can_wait=False) is not None


def test_the_end_of_a_job_is_told_at_once() -> None:
    master = with_all_leased()
    assert [ask(master, name) for name in "bc"] == [None, None]
    answered = replies(master.worker("a", failure=Failure(code="model", message="no"))[1])
    assert [answered[name].stop for name in "abc"] == [True] * 3
    assert not master.core.is_everyone_told, "the partitions have not heard of it"


def test_a_partition_that_is_elsewhere_is_told_at_once() -> None:
    master = with_all_leased()
    assert ask(master, "b") is None
    told = master.feed_status(master.partitions[1], endpoint="ipc://elsewhere")
    assert replies(told)["b"].partitions[1].endpoint == "ipc://elsewhere"


def test_nothing_is_leased_to_a_worker_that_was_lost_while_it_waited() -> None:
    master = with_all_leased()
    assert [ask(master, name) for name in "bc"] == [None, None]
    master.core.processes.lose("b", "killed")
    assert set(replies(master.worker("a")[1])) == {"a", "c"}


def test_a_worker_that_is_not_wanted_any_more_is_told_to_go() -> None:
    master = with_all_leased()
    assert [ask(master, name) for name in "bc"] == [None, None]
    master.core.processes.live.dismiss("b")
    master.core.processes.lose("b", "not wanted")
    assert replies(master.feed(Tick()))["b"].stop


def test_a_spare_is_answered_when_it_takes_over() -> None:
    master = with_all_leased()
    master.core.processes.live.supervise(1)
    assert ask(master, "b") is None
    master.core.processes.lose("a", "killed")
    assert replies(master.feed(Tick()))["b"].lease.task == 0


@pytest.mark.parametrize("is_worker_first", [True, False])
def test_a_barrier_is_opened_by_whoever_comes_to_it_last(is_worker_first: bool) -> None:
    """A worker reports its task before the partitions have told that they stand, or after that."""
    master = AskedMaster("sync", tasks=1, evaluated=2)
    assert master.worker("a", wants_task=True, callbacks=DECIDING)[0].lease is not None

    def report() -> Any:
        answer, _ = master.worker("a", done=master.done(0), wants_task=True, wants_evaluation=True)
        return answer.evaluation or ask(master, "a")

    def stand() -> list[Any]:
        return [
            each
            for status in master.partitions
            for each in master.feed_status(status, finished_tasks=1, version=1, can_wait=True)
        ]

    if is_worker_first:
        assert report() is None
        lease = replies(stand())["a"].evaluation
    else:
        stand()
        lease = report()
    assert (lease.task, lease.version) == (0, 1)


def test_who_has_computed_ahead_of_a_barrier_hears_at_once_that_it_is_passed() -> None:
    """One after the other: a worker that has nothing in hand has asked before it."""
    master = AskedMaster("sync", tasks=4, slots=1, evaluated=0, partitions=1)
    barriers = master.core.work.barriers
    assert master.worker("a", wants_task=True, callbacks=DECIDING)[0].lease is not None
    barriers._milestones = Milestones(master.core.plan, 1)
    barriers._move_on()
    asks = {"computes_ahead": True, "holding": (0,)}
    lease = master.worker("a", wants_task=True, **asks)[0].lease
    assert (lease.task, lease.is_barred) == (1, True)
    assert ask(master, "idle", computes_ahead=True) is None
    asks = {"computes_ahead": True, "holding": (1,), "barred": (1,)}
    master.worker("a", done=master.done(0), **{**asks, "holding": (0, 1)})
    assert ask(master, "a", **asks) is None
    stood = master.feed_status(master.partitions[0], finished_tasks=1, version=1, can_wait=True)
    (concluder,) = [who for who, each in replies(stood).items() if getattr(each, "conclude", None)]
    number = replies(stood)[concluder].conclude.round
    result = EvaluationResult(round=number, metrics={}, decision=Decision(logs={}, learning_rate=0.5))
    told = replies(master.worker(concluder, results=(result,), **(asks if concluder == "a" else {}))[1])
    (released,) = told["a"].released
    assert (released.task, released.learning_rate, released.is_barred) == (1, 0.5, False)


def test_a_partition_at_a_barrier_hears_what_is_new_at_once() -> None:
    master = AskedMaster("sync", tasks=1, evaluated=2, partitions=1)
    master.worker("a", wants_task=True, callbacks=DECIDING)
    stands = msgspec.structs.replace(master.partitions[0], finished_tasks=1, version=1, can_wait=True)
    fenced, _ = master.ask(master.after(stands, can_wait=False), to="p")
    assert fenced.fence == 1
    assert master.ask(master.after(stands), to="p")[0] is None
    assert not replies(master.feed(Tick()))
    master.core.checkpoints.ask(1)
    assert replies(master.feed(Tick()))["p"].checkpoint is not None
    assert master.ask(master.after(stands), to="p")[0] is None, "it has been told"
    master.now = BARRIER_S
    assert replies(master.feed(Tick()))["p"].checkpoint is not None, "an answer may have been lost"

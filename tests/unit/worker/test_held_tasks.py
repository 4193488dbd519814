"""What a worker has in hand, and whether it has room for more."""

import pytest

from edlz.services.errors import LocalProtocolError
from edlz.services.protocol.messages import Exchanged
from edlz.services.worker.core.held_tasks import LASTING, STEPS, HeldTask, HeldTasks, Pause, Phase
from edlz.services.worker.core.instructions import Outcome
from tests import builders


def take_tasks(mode: str, *tasks: int, slots: int = 2) -> HeldTasks:
    plan = builders.plan(8, mode=mode, slots=slots)
    in_hand = HeldTasks(plan)
    for task in tasks:
        in_hand.take(task)
    return in_hand


def held_task(in_hand: HeldTasks, task: int) -> HeldTask:
    held = in_hand.get(task)
    assert held is not None
    return held


def lead(in_hand: HeldTasks, task: int, *phases: Phase) -> None:
    for phase in phases:
        held_task(in_hand, task).enter(phase)


TO_COMPUTING = (Phase.PULLING, Phase.READY, Phase.COMPUTING)


def test_tasks_that_follow_one_another_share_a_lane() -> None:
    assert [held.lane for held in take_tasks("async", 0, 1, 5)] == [0, 0, 0]
    assert [held.lane for held in take_tasks("sync", 0, 1, 2, 3)] == [0, 1, 0, 1]


def test_each_attempt_has_a_number_of_its_own() -> None:
    in_hand = take_tasks("async", 0)
    first = held_task(in_hand, 0).attempt
    in_hand.drop(0)
    assert len({first, in_hand.new_attempt(), in_hand.take(0).attempt}) == 3


def test_async_there_is_one_task_in_reserve() -> None:
    in_hand = take_tasks("async")
    assert in_hand.wants_task
    in_hand.take(0)
    assert not in_hand.wants_task
    lead(in_hand, 0, Phase.PULLING)
    assert in_hand.wants_task
    in_hand.take(1)
    assert not in_hand.wants_task
    held_task(in_hand, 0).back_off(9, 0.0, are_pushes_held=True, is_lost=True)
    assert not in_hand.wants_task, "the other one begins first"
    lead(in_hand, 1, Phase.PULLING)
    assert in_hand.wants_task


def test_sync_a_worker_that_only_waits_takes_another_slot() -> None:
    in_hand = take_tasks("sync", 0, 2)
    lead(in_hand, 0, *TO_COMPUTING)
    assert not in_hand.wants_task
    lead(in_hand, 0, Phase.PUSHING, Phase.STAGED)
    assert in_hand.wants_task


def test_sync_the_earliest_round_is_that_of_what_is_not_finished() -> None:
    in_hand = take_tasks("sync", 0, 1, 2)
    assert [held.task for held in in_hand.of_earliest_round()] == [0, 1]
    for task in (0, 1):
        lead(in_hand, task, Phase.PULLING, Phase.REPORTING)
    assert [held.task for held in in_hand.of_earliest_round()] == [2]
    lead(in_hand, 2, Phase.PULLING, Phase.REPORTING)
    assert in_hand.of_earliest_round() == []


def test_sync_runs_of_a_step_are_of_one_round_and_version() -> None:
    in_hand = take_tasks("sync", 0, 1, 2)
    assert [held.task for held in in_hand.of_step(held_task(in_hand, 0))] == [0, 1]
    held_task(in_hand, 1).version = 1
    assert [held.task for held in in_hand.of_step(held_task(in_hand, 0))] == [0]


# ---------------------------------------------------------------- phases


ANSWER = Exchanged(incarnation=(1, 1), mark=0, finished=False, version=3)


@pytest.mark.parametrize(
    ("before", "after"),
    [(before, after) for before in Phase for after in Phase if after not in STEPS.after[before]],
)
def test_a_step_that_cannot_be_raises_and_changes_nothing(before: Phase, after: Phase) -> None:
    held = HeldTask(task=0, attempt=1, lane=0, phase=before, acks={0}, answers={0: ANSWER}, ahead={1: {}})
    with pytest.raises(LocalProtocolError, match=f"a task that was {before.value} cannot be {after.value}"):
        held.enter(after)
    assert held == HeldTask(
        task=0, attempt=1, lane=0, phase=before, acks={0}, answers={0: ANSWER}, ahead={1: {}}
    )


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_is_reached_and_left(phase: Phase) -> None:
    assert STEPS.after[phase]
    assert phase is STEPS.first or any(phase in after for after in STEPS.after.values())


@pytest.mark.parametrize(
    ("before", "after"),
    [(before, after) for before in Phase for after in Phase if after in STEPS.after[before]],
)
def test_a_task_forgets_what_says_nothing_in_its_next_phase(before: Phase, after: Phase) -> None:
    full = {
        "acks": {0},
        "answers": {0: ANSWER},
        "ahead": {1: {}},
        "pause": Pause(1.0),
        "result": Outcome(False, ()),
    }
    held = HeldTask(
        0, 1, 0, phase=before, **{name: full[name] for name in LASTING if before in LASTING[name]}
    )
    held.check_invariants()
    held.enter(after)
    held.pause = held.pause or (Pause(2.0) if after is Phase.BACKING_OFF else None)
    held.check_invariants()
    assert bool(held.answers) == (
        before in LASTING["answers"] and after in LASTING["answers"] - {Phase.PULLING}
    )


def test_a_pause_ends_with_the_next_attempt() -> None:
    held = HeldTask(task=0, attempt=1, lane=0, phase=Phase.PULLING)
    held.back_off(2, 10.0, are_pushes_held=True, is_lost=False)
    assert held.are_pushes_held
    held.check_invariants()
    held.abandon(Phase.PULLING, 3)
    assert not held.are_pushes_held
    held.check_invariants()

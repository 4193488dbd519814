"""Who gets work, and who hangs."""

import pytest

from edlz.services.master.core.processes.live_workers import SILENCE_S, START_HANG_S, LiveWorkers
from edlz.services.master.core.tasks.task_queue import Holder
from edlz.services.master.core.vocabulary.records import GivenUp, WorkerEntry
from edlz.services.protocol.messages import WorkerOrders
from edlz.services.worker.pace import Pace
from tests.simulation.job import Schedule, SimulatedJob

HANG_S = 20.0


def entry(
    n: int,
    seen_s: float = 0.0,
    busy_s: float = 0.0,
    longest_s: float = 0.0,
    holding: tuple[int, ...] = (),
    has_asked: bool = True,
    is_starting: bool = False,
) -> WorkerEntry:
    return WorkerEntry(
        incarnation=(1, n),
        seq=1,
        seen_s=seen_s,
        answer=WorkerOrders(term=1, seq=1, incarnation=(1, n)),
        holding=holding,
        steps=0,
        has_asked=has_asked,
        busy_s=busy_s,
        longest_s=longest_s,
        is_starting=is_starting,
    )


def live_workers(*workers: str, target: int | None) -> LiveWorkers:
    live = LiveWorkers(HANG_S)
    if target is not None:
        live.supervise(target)
    for n, worker in enumerate(workers):
        live.note(worker, entry(n))
    return live


def active(live: LiveWorkers, *workers: str) -> list[str]:
    return [worker for worker in workers if live.is_active(worker)]


def test_those_that_came_first_work_and_the_next_takes_over() -> None:
    live = live_workers("0", "1", "2", "3", target=2)
    assert active(live, "0", "1", "2", "3") == ["0", "1"]
    live.forget("0")
    assert active(live, "0", "1", "2", "3") == ["1", "2"]
    live.note("1", entry(9))  # a new life of the same name comes last
    assert active(live, "1", "2", "3") == ["2", "3"]
    live.supervise(3)
    assert active(live, "1", "2", "3") == ["1", "2", "3"]


def test_without_a_launcher_all_work_and_none_is_given_up() -> None:
    live = live_workers("0", "1", target=None)
    assert active(live, "0", "1", "anybody") == ["0", "1", "anybody"]
    live.forget("0")
    live.note_silence("0", entry(0, 0.0))
    live.note("1", entry(1, 0.0, busy_s=1e6))
    assert list(live.give_up(1e9)) == []


def test_a_worker_that_says_nothing_is_given_up_after_a_while() -> None:
    live = live_workers("0", "1", target=2)
    live.note_silence("0", entry(0, 100.0))
    assert list(live.give_up(100.0 + HANG_S)) == []
    assert list(live.give_up(101.0 + HANG_S)) == [GivenUp("worker-0", "hung: nothing heard for 21s")]
    assert list(live.give_up(200.0)) == []
    assert live.is_retired("0")
    assert not live.is_retired("1")


def test_one_that_is_not_wanted_any_more_is_told_to_go_but_has_not_hung() -> None:
    live = live_workers("0", "1", target=1)
    live.dismiss("1")
    assert (live.is_retired("1"), live.has_hung("1")) == (True, False)
    live.note_silence("0", entry(0, 0.0))
    assert [given_up.name for given_up in live.give_up(1e3)] == ["worker-0"]
    assert live.has_hung("0")


def test_one_that_speaks_again_in_time_is_kept() -> None:
    live = live_workers("0", target=1)
    live.note_silence("0", entry(0, 100.0))
    live.note("0", entry(0, 125.0))
    assert list(live.give_up(125.0)) == []


def test_a_worker_hangs_where_one_piece_of_work_takes_far_longer_than_any_before() -> None:
    live = live_workers("0", "1", "2", target=3)
    live.note("0", entry(0, 100.0, busy_s=21.0, longest_s=1.0))  # hangs
    live.note("1", entry(1, 100.0, busy_s=21.0, longest_s=5.0))  # slow: four times its longest
    live.note("2", entry(2, 100.0, busy_s=0.0))  # has nothing to do
    assert list(live.give_up(100.0)) == [GivenUp("worker-0", "hung: no progress for 21s; its log says where")]
    assert list(live.give_up(130.0)) == []  # what the others are at by now they have not said
    live.note("1", entry(1, 131.0, busy_s=51.0, longest_s=5.0))
    assert [given_up.name for given_up in live.give_up(131.0)] == ["worker-1"]


def told(pace: Pace, n: int, now: float) -> WorkerEntry:
    busy_s, longest_s, is_starting = pace.told(now)
    return entry(n, now, busy_s, longest_s, is_starting=is_starting)


def test_the_end_of_a_slow_build_is_no_hang_and_hides_no_later_one() -> None:
    live, pace = live_workers("0", target=1), Pace()
    pace.begin("build", 0.0)
    live.note("0", told(pace, 0, 800.0))
    assert list(live.give_up(800.0)) == []  # a busy machine
    pace.end(801.0)
    live.note("0", told(pace, 0, 801.0))  # what it says when it hears that its model is built
    assert list(live.give_up(801.5)) == []
    pace.begin("step", 802.0)
    live.note("0", told(pace, 0, 803.0))  # compiles
    assert list(live.give_up(803.0)) == []
    pace.end(804.0)
    for now in (1600.0, 1700.0, 1800.0):
        pace.begin("step", now)
        pace.end(now + 1.0)
        live.note("0", told(pace, 0, now + 50.0))
        assert list(live.give_up(now + 50.0)) == []
    pace.begin("step", 2000.0)
    live.note("0", told(pace, 0, 2000.0 + HANG_S - 1))
    assert list(live.give_up(2000.0 + HANG_S - 1)) == []
    live.note("0", told(pace, 0, 2000.0 + HANG_S + 1))
    assert list(live.give_up(2000.0 + HANG_S + 1)) == [
        GivenUp("worker-0", "hung: no progress for 21s; its log says where")
    ]


def test_work_that_always_takes_longer_than_a_hang_is_none() -> None:
    live, pace = live_workers("0", target=1), Pace()
    for kind, lasts_s in (("evaluation", 120.0), ("step", 70.0)):
        for since_s in (0.0, 1000.0, 2000.0):
            pace.begin(kind, since_s)
            live.note("0", told(pace, 0, since_s + lasts_s))
            assert list(live.give_up(since_s + lasts_s)) == []
            pace.end(since_s + lasts_s)


def test_what_has_begun_after_the_clock_was_read_has_lasted_no_time() -> None:
    pace = Pace()
    pace.begin("build", 5.001)  # in its thread
    assert pace.told(5.0) == (0.0, 0.0, True)


def test_after_a_slow_first_piece_no_other_may_take_longer_than_a_first_one_may() -> None:
    live, pace = live_workers("0", target=1), Pace()
    pace.begin("step", 0.0)
    pace.end(700.0)  # compiles on a busy machine
    pace.begin("step", 1000.0)
    live.note("0", told(pace, 0, 1000.0 + START_HANG_S))
    assert list(live.give_up(2000.0)) == []
    live.note("0", told(pace, 0, 1001.0 + START_HANG_S))
    assert [given_up.name for given_up in live.give_up(2000.0)] == ["worker-0"]


def test_a_build_that_hangs_is_given_up_too() -> None:
    live, pace = live_workers("0", target=1), Pace()
    pace.begin("build", 0.0)
    live.note("0", told(pace, 0, START_HANG_S))
    assert list(live.give_up(START_HANG_S)) == []
    live.note("0", told(pace, 0, START_HANG_S + 1))
    text = "hung: no progress for 901s while it started; its log says where"
    assert list(live.give_up(START_HANG_S + 1)) == [GivenUp("worker-0", text)]


def test_a_long_evaluation_hides_no_step_that_hangs() -> None:
    live, pace = live_workers("0", target=1), Pace()
    for kind, lasts_s in (("step", 1.0), ("evaluation", 1.0), ("evaluation", 15.0), ("step", 1.0)):
        pace.begin(kind, 0.0)
        pace.end(lasts_s)
    pace.begin("evaluation", 100.0)
    live.note("0", told(pace, 0, 200.0))
    assert list(live.give_up(200.0)) == []
    pace.end(201.0)
    pace.begin("step", 300.0)
    live.note("0", told(pace, 0, 321.0))
    assert [given_up.name for given_up in live.give_up(321.0)] == ["worker-0"]


def test_who_has_been_silent_for_long() -> None:
    live = live_workers("0", "1", target=None)
    live.note("1", entry(1, seen_s=5.0))
    assert live.silent(SILENCE_S) == []
    assert [worker for worker, _ in live.silent(SILENCE_S + 1.0)] == ["0"]


def test_what_those_hold_that_have_asked_and_get_work() -> None:
    live = live_workers("0", "1", target=2)
    assert sorted(live.asking) == ["0", "1"]
    live.note("2", entry(2, holding=(3,)))  # a spare
    live.note("1", entry(1, holding=(2,)))
    live.note("0", entry(0, has_asked=False))
    assert live.asking == {"1": Holder((1, 1), (2,))}
    live.forget("0")
    live.check_invariants()
    assert live.asking == {"1": Holder((1, 1), (2,)), "2": Holder((1, 2), (3,))}
    live.supervise(1)
    live.check_invariants()
    assert sorted(live.asking) == ["1"]


def test_a_silent_worker_whose_node_does_not_answer_is_given_up_at_once() -> None:
    live = live_workers("0", "1", target=2)
    live.unreachable = {"0", "1"}
    assert list(live.give_up(SILENCE_S)) == []  # they speak still: who says that knows less than we do
    live.note_silence("0", entry(0, 0.0))
    assert list(live.give_up(SILENCE_S + 1)) == [
        GivenUp("worker-0", "its node does not answer: nothing heard for 11s", is_unreachable=True)
    ]
    assert list(live.give_up(SILENCE_S + 2)) == []


# ---------------------------------------------------------------- whole jobs


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("build_s", [62.0, 700.0])
def test_a_job_whose_workers_build_for_long_gives_none_up(mode: str, build_s: float) -> None:
    job = SimulatedJob(Schedule(1, mode, 2, 1, (3,) * 6, 2, 2, build_s=build_s, home="machine")).run()
    assert not any("hung" in line for line in job.log)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_that_hangs_after_a_long_build_is_found_in_time(mode: str, seed: int) -> None:
    workers = 2 if mode == "sync" else 1  # another one would take over the lease, and need nobody else
    schedule = Schedule(seed, mode, 2, 1, (4,) * 8, 2, workers, build_s=90.0, hangs=((5, 2),), home="machine")
    job = SimulatedJob(schedule).run()
    assert sum("hung: no progress for 6" in line for line in job.log) == 1

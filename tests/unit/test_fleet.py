"""Which processes should run, what takes the place of a lost one, and which losses end the job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.backoff import Backoff
from edlz.services.errors import ConfigError
from edlz.services.exits import Cause, cause_of
from edlz.services.master.fleet import Fleet, Loss
from edlz.services.messages import ProcessExit

KILLED = "killed by signal 9 (SIGKILL)"
LONG_S = 100.0  # a life that nobody calls short


def killed(name: str, launch: int = 0) -> ProcessExit:
    return ProcessExit(name=name, code=None, signal=9, reason=KILLED, launch=launch)


def failed(name: str, code: int = 1) -> ProcessExit:
    return ProcessExit(name=name, code=code, reason=f"exit code {code}")


class Launcher:
    """A fleet with a clock, and processes that run as it desires."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.now, self.room = fleet, 0.0, None
        self.poll()
        self.poll()

    def poll(self, *exits: ProcessExit, after_s: float = LONG_S) -> list[Loss]:
        self.now += after_s
        gone = {exit_.name for exit_ in exits}
        running = [name for name in self.fleet.desired(self.now) if name not in gone]
        losses = self.fleet.on_status(running, exits, self.room, self.now)
        self.fleet.check_invariants()
        return losses

    @property
    def desired(self) -> tuple[str, ...]:
        return self.fleet.desired(self.now)


# ---------------------------------------------------------------- replacements


def test_a_killed_worker_is_replaced_by_a_new_id_each_time() -> None:
    launcher = Launcher(Fleet(workers=2, servers=1))
    assert launcher.desired == ("ps-0", "worker-0", "worker-1")
    for number in range(20):
        lost = next(name for name in launcher.desired if name.startswith("worker"))
        (loss,) = launcher.poll(killed(lost))
        assert (loss.name, loss.reason, loss.replacement) == (lost, KILLED, f"worker-{number + 2}")
        assert loss.failure is None
    assert launcher.desired == ("ps-0", "worker-20", "worker-21")


def test_a_parameter_server_comes_back_under_its_name() -> None:
    launcher = Launcher(Fleet(workers=1, servers=2))
    (loss,) = launcher.poll(killed("ps-1"))
    assert (loss.replacement, loss.delay_s, loss.failure) == ("ps-1", 0.0, None)
    assert "ps-1" in launcher.desired


def test_the_same_exit_told_twice_counts_once() -> None:
    launcher = Launcher(Fleet(workers=1, servers=1))
    launcher.poll()
    assert len(launcher.poll(killed("ps-0", launch=5))) == 1
    assert launcher.poll(killed("ps-0", launch=5)) == []
    assert len(launcher.poll(killed("ps-0", launch=6))) == 1


def test_strangers_do_not_count() -> None:
    launcher = Launcher(Fleet(workers=1, servers=1))
    assert launcher.poll(killed("worker-7"), killed("ps-3")) == []


def test_an_exit_that_is_never_told_leaves_the_name_desired() -> None:
    launcher = Launcher(Fleet(workers=1, servers=1))
    launcher.fleet.on_status([], [], None, launcher.now)
    assert launcher.desired == ("ps-0", "worker-0")


def test_short_lives_are_followed_by_growing_pauses() -> None:
    launcher = Launcher(Fleet(workers=1, servers=0))
    delays = []
    for number in range(8):
        launcher.poll(after_s=40.0)  # the new one is seen
        (loss,) = launcher.poll(killed(f"worker-{number}"), after_s=1.0)
        delays.append(loss.delay_s)
        assert bool(launcher.desired) == (number == 0)  # the first one has lived for long
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    launcher.poll(after_s=40.0)
    (loss,) = launcher.poll(killed("worker-8"), after_s=LONG_S)
    assert loss.delay_s == 0.0


def test_a_long_life_is_forgiven() -> None:
    backoff = Backoff()
    assert [backoff.on_end(1.0), backoff.on_end(1.0), backoff.on_end(LONG_S), backoff.on_end(1.0)] == [
        0.5,
        1.0,
        0.0,
        0.5,
    ]


# ---------------------------------------------------------------- failures


def test_workers_that_fail_are_replaced_as_often_as_allowed() -> None:
    launcher = Launcher(Fleet(workers=2, servers=0, relaunches=2))
    assert launcher.poll(failed("worker-0"))[0].replacement == "worker-2"
    assert launcher.poll(failed("worker-1"))[0].replacement == "worker-3"
    (loss,) = launcher.poll(failed("worker-2"))
    assert (loss.replacement, loss.failure) == ("", None)
    assert launcher.desired == ("worker-3",)
    (loss,) = launcher.poll(failed("worker-3", 70))
    assert loss.failure is not None
    assert "no worker is left: worker-2 exit code 1; worker-3 exit code 70" in loss.failure.text


def test_a_killed_worker_is_replaced_whatever_failed_before() -> None:
    launcher = Launcher(Fleet(workers=2, servers=0, relaunches=0))
    assert launcher.poll(failed("worker-0"))[0].replacement == ""
    assert launcher.poll(killed("worker-1"))[0].replacement == "worker-2"


def test_a_server_that_never_stays_up_ends_the_job_and_one_that_is_killed_does_not() -> None:
    for end, is_fatal in ((failed, True), (killed, False)):
        launcher = Launcher(Fleet(workers=1, servers=1))
        failures = []
        for _ in range(6):
            launcher.poll(after_s=40.0)
            failures += [loss.failure for loss in launcher.poll(end("ps-0"), after_s=1.0) if loss.failure]
        assert bool(failures) == is_fatal


@pytest.mark.parametrize(
    ("exit_", "cause"),
    [
        (ProcessExit(name="w", code=0), Cause.SUCCEEDED),
        (ProcessExit(name="w", code=3), Cause.ERROR),
        (ProcessExit(name="w", code=137), Cause.KILLED),
        (ProcessExit(name="w", code=143), Cause.PREEMPTED),
        (ProcessExit(name="w", code=139), Cause.ERROR),
        (ProcessExit(name="w", code=None, signal=9), Cause.KILLED),
        (ProcessExit(name="w", code=None, signal=15), Cause.PREEMPTED),
        (ProcessExit(name="w", code=None, signal=11), Cause.ERROR),
        (ProcessExit(name="w", code=None, signal=9, cause="out of memory"), Cause.OUT_OF_MEMORY),
        (ProcessExit(name="w", code=137, cause="preempted"), Cause.PREEMPTED),
        (ProcessExit(name="w", code=None), Cause.UNKNOWN),
    ],
)
def test_causes(exit_: ProcessExit, cause: Cause) -> None:
    assert cause_of(exit_) is cause


# ---------------------------------------------------------------- scaling, spares, room


def test_scaling() -> None:
    launcher = Launcher(Fleet(workers=2, servers=1, least=1, most=4))
    assert launcher.fleet.scale(4, launcher.now) == 2
    assert launcher.desired == ("ps-0", "worker-0", "worker-1", "worker-2", "worker-3")
    assert launcher.fleet.scale(1, launcher.now) == 4
    assert launcher.desired == ("ps-0", "worker-0")
    assert launcher.fleet.scale(2, launcher.now) == 1
    assert launcher.desired == ("ps-0", "worker-0", "worker-4")


@pytest.mark.parametrize(
    ("workers", "message"), [(0, "less than --min_workers=1"), (5, "more than --max_workers=4")]
)
def test_scaling_out_of_bounds(workers: int, message: str) -> None:
    with pytest.raises(ConfigError, match=f"workers={workers} is {message}"):
        Fleet(workers=2, servers=1, least=1, most=4).scale(workers, 0.0)


def test_spares_run_beside_the_workers_and_are_replaced_too() -> None:
    launcher = Launcher(Fleet(workers=2, servers=0, spares=1))
    assert launcher.desired == ("worker-0", "worker-1", "worker-2")
    assert launcher.poll(killed("worker-0"))[0].replacement == "worker-3"
    assert launcher.desired == ("worker-1", "worker-2", "worker-3")


def test_no_worker_runs_before_it_is_known_how_many_have_room() -> None:
    fleet = Fleet(workers=2, servers=1)
    assert fleet.desired(0.0) == ("ps-0",)
    fleet.on_status([], [], 1, 0.0)
    assert (fleet.desired(0.0), fleet.waiting(0.0)) == (("ps-0", "worker-0"), 1)


def test_who_only_starts_is_let_go_before_who_trains() -> None:
    launcher = Launcher(Fleet(workers=3, servers=0))
    launcher.fleet.note_ready("worker-2")
    launcher.fleet.scale(1, launcher.now)
    assert launcher.desired == ("worker-2",)
    assert launcher.fleet.take_dismissed() == ["worker-0", "worker-1"]
    assert launcher.fleet.take_dismissed() == []


def test_a_worker_that_waits_for_its_turn_is_still_wanted() -> None:
    launcher = Launcher(Fleet(workers=1, servers=0))
    launcher.poll(killed("worker-0"))
    (loss,) = launcher.poll(killed("worker-1"), after_s=1.0)
    assert loss.delay_s > 0
    assert (launcher.desired, launcher.fleet.waiting(launcher.now)) == ((), 1)


def test_no_more_run_than_have_room_and_the_rest_waits() -> None:
    launcher = Launcher(Fleet(workers=3, servers=1))
    launcher.room = 1
    launcher.poll()
    assert (launcher.desired, launcher.fleet.waiting(launcher.now)) == (("ps-0", "worker-0"), 2)
    launcher.room = 2
    launcher.poll()
    assert (launcher.desired, launcher.fleet.waiting(launcher.now)) == (("ps-0", "worker-0", "worker-3"), 1)
    launcher.room = 0
    launcher.poll()
    assert (launcher.desired, launcher.fleet.waiting(launcher.now)) == (("ps-0",), 3)


def test_a_worker_that_hangs_is_replaced_and_named_until_it_is_gone() -> None:
    launcher = Launcher(Fleet(workers=1, servers=0))
    loss = launcher.fleet.retire("worker-0", "hung", launcher.now)
    assert loss is not None
    assert (loss.reason, loss.replacement) == ("hung", "worker-1")
    assert launcher.fleet.retire("worker-0", "hung", launcher.now) is None
    launcher.fleet.on_status(["worker-0", "worker-1"], [], None, launcher.now)
    assert launcher.fleet.hung == {"worker-0"}
    assert launcher.poll(killed("worker-0")) == []
    assert launcher.fleet.hung == set()


# ---------------------------------------------------------------- the next master


def test_the_next_master_goes_on_with_ids_and_target() -> None:
    launcher = Launcher(Fleet(workers=2, servers=1))
    launcher.poll(killed("worker-0"))
    launcher.fleet.scale(3, launcher.now)
    desired = launcher.desired
    after = Fleet(workers=2, servers=1, record=launcher.fleet.record)
    assert after.desired(0.0) == desired
    assert after.scale(4, 0.0) == 3
    assert after.desired(0.0) == (*desired, "worker-4")


def test_a_job_that_is_resumed_with_another_number_has_that_number() -> None:
    record = Launcher(Fleet(workers=2, servers=1)).fleet.record
    assert Launcher(Fleet(workers=1, servers=1, record=record)).desired == ("ps-0", "worker-0")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("kill"), st.integers(0, 8)),
            st.tuples(st.just("fail"), st.integers(0, 8)),
            st.tuples(st.just("twice"), st.integers(0, 8)),
            st.tuples(st.just("kill ps"), st.integers(0, 1)),
            st.tuples(st.just("scale"), st.integers(1, 6)),
            st.tuples(st.just("room"), st.integers(0, 8)),
            st.tuples(st.just("hang"), st.integers(0, 8)),
            st.tuples(st.just("master"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_any_order_of_events_ends_with_as_many_workers_as_wanted(events: list[tuple[str, int]]) -> None:
    launcher = Launcher(Fleet(workers=2, servers=2, relaunches=1_000))
    used: set[str] = set()
    for launches, (kind, number) in enumerate(events, 1):
        workers = [name for name in launcher.desired if name.startswith("worker")]
        name = workers[number % len(workers)] if workers else "worker-99"
        if kind in ("kill", "fail", "twice"):
            end = failed(name) if kind == "fail" else killed(name, launches)
            gone = launcher.poll(end, *([end] if kind == "twice" else []))
            assert len(gone) == (1 if workers else 0)
            used |= {loss.name for loss in gone}
        elif kind == "kill ps":
            assert launcher.poll(killed(f"ps-{number}", launches))[0].replacement == f"ps-{number}"
        elif kind == "scale":
            launcher.fleet.scale(number, launcher.now)
        elif kind == "room":
            launcher.room = number
        elif kind == "hang" and workers:
            launcher.fleet.retire(name, "hung", launcher.now)
            used.add(name)
        elif kind == "master":
            launcher.fleet = Fleet(workers=2, servers=2, relaunches=1_000, record=launcher.fleet.record)
        launcher.poll()
        assert not used & set(launcher.desired), "an id has come back"
    launcher.room = None
    launcher.poll()
    workers = [name for name in launcher.desired if name.startswith("worker")]
    assert len(workers) == launcher.fleet.target
    assert launcher.desired[:2] == ("ps-0", "ps-1")


def test_an_end_that_was_seen_to_is_nobodys_failure() -> None:
    launcher = Launcher(Fleet(workers=2, servers=0, relaunches=0))
    full = ProcessExit(name="worker-0", code=137, cause="out of memory", is_remedied=True)
    (loss,) = launcher.poll(full)
    assert (loss.replacement, loss.failure) == ("worker-2", None)
    (loss,) = launcher.poll(ProcessExit(name="worker-1", code=137, cause="out of memory"))
    assert loss.replacement == ""

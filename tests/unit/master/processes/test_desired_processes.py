"""Which processes should run, what takes the place of a lost one, and which losses end the job."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edlz.services.configuration.job_size import MOST_WORKERS
from edlz.services.errors import ConfigError
from edlz.services.master.core.processes.desired_processes import (
    MOST_TAKEN,
    MOST_VAIN,
    DesiredProcesses,
    Loss,
)
from edlz.services.protocol.messages import ProcessExit
from edlz.services.supervision.backoff import LONGEST_DELAY_S, Backoff
from edlz.services.supervision.post_mortem import Cause, cause_of

KILLED = "killed by signal 9 (SIGKILL)"
LONG_S = 100.0  # a life that nobody calls short


def killed(name: str, launch: int = 0) -> ProcessExit:
    return ProcessExit(name=name, code=None, signal=9, reason=KILLED, launch=launch)


def failed(name: str, code: int = 1) -> ProcessExit:
    return ProcessExit(name=name, code=code, reason=f"exit code {code}")


class Launcher:
    """Desired processes with a clock, and processes that run as it desires; the job gets on unless it is in vain."""

    def __init__(self, desired: DesiredProcesses) -> None:
        self.desired, self.now, self.room = desired, 0.0, None
        self.achieved, self.is_vain, self.busy = 0, False, ()
        self.poll()
        self.poll()

    def poll(self, *exits: ProcessExit, after_s: float = LONG_S) -> list[Loss]:
        self.now += after_s
        gone = {exit_.name for exit_ in exits}
        running = [name for name in self.desired.names(self.now) if name not in gone]
        self.achieved += not self.is_vain
        about = {"achieved": self.achieved, "furthest": self.achieved, "busy": self.busy}
        losses = self.desired.on_status(running, exits, self.room, self.now, **about)
        self.desired.check_invariants()
        return losses

    @property
    def names(self) -> tuple[str, ...]:
        return self.desired.names(self.now)


# ---------------------------------------------------------------- replacements


def test_a_killed_worker_is_replaced_by_a_new_id_each_time() -> None:
    launcher = Launcher(DesiredProcesses(workers=2, servers=1))
    assert launcher.names == ("ps-0", "worker-0", "worker-1")
    for number in range(20):
        lost = next(name for name in launcher.names if name.startswith("worker"))
        (loss,) = launcher.poll(killed(lost))
        assert (loss.name, loss.reason, loss.replacement) == (lost, KILLED, f"worker-{number + 2}")
        assert loss.failure is None
    assert launcher.names == ("ps-0", "worker-20", "worker-21")


def test_a_parameter_server_comes_back_under_its_name() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=2))
    (loss,) = launcher.poll(killed("ps-1"))
    assert (loss.replacement, loss.delay_s, loss.failure) == ("ps-1", 0.0, None)
    assert "ps-1" in launcher.names


def test_the_same_exit_told_twice_counts_once() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=1))
    launcher.poll()
    assert len(launcher.poll(killed("ps-0", launch=5))) == 1
    assert launcher.poll(killed("ps-0", launch=5)) == []
    assert len(launcher.poll(killed("ps-0", launch=6))) == 1


def test_strangers_do_not_count() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=1))
    assert launcher.poll(killed("worker-7"), killed("ps-3")) == []


def test_an_exit_that_is_never_told_leaves_the_name_desired() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=1))
    launcher.desired.on_status([], [], None, launcher.now)
    assert launcher.names == ("ps-0", "worker-0")


def test_short_lives_are_followed_by_growing_pauses() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=0))
    delays = []
    for number in range(8):
        launcher.poll(after_s=40.0)  # the new one is seen
        (loss,) = launcher.poll(killed(f"worker-{number}"), after_s=1.0)
        delays.append(loss.delay_s)
        assert bool(launcher.names) == (number == 0)  # the first one has lived for long
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
    launcher = Launcher(DesiredProcesses(workers=2, servers=0, relaunches=2))
    launcher.is_vain = True
    assert launcher.poll(failed("worker-0"))[0].replacement == "worker-2"
    assert launcher.poll(failed("worker-1"))[0].replacement == "worker-3"
    (loss,) = launcher.poll(failed("worker-2"))
    assert (loss.replacement, loss.failure) == ("", None)
    assert launcher.names == ("worker-3",)
    (loss,) = launcher.poll(failed("worker-3", 70))
    assert loss.failure is not None
    assert (
        "no worker is left: worker-2 exit code 1, like 1 before it in its place; worker-3 exit code 70"
        in loss.failure.text
    )


def test_a_killed_worker_is_replaced_whatever_failed_before() -> None:
    launcher = Launcher(DesiredProcesses(workers=2, servers=0, relaunches=0))
    assert launcher.poll(failed("worker-0"))[0].replacement == ""
    assert launcher.poll(killed("worker-1"))[0].replacement == "worker-2"


def test_a_server_that_never_stays_up_ends_the_job_sooner_than_one_that_is_killed() -> None:
    for end, is_fatal in ((failed, True), (killed, False)):
        launcher = Launcher(DesiredProcesses(workers=1, servers=1))
        launcher.is_vain = True
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
    launcher = Launcher(DesiredProcesses(workers=2, servers=1, least=1, most=4))
    assert launcher.desired.scale(4, launcher.now) == 2
    assert launcher.names == ("ps-0", "worker-0", "worker-1", "worker-2", "worker-3")
    assert launcher.desired.scale(1, launcher.now) == 4
    assert launcher.names == ("ps-0", "worker-0")
    assert launcher.desired.scale(2, launcher.now) == 1
    assert launcher.names == ("ps-0", "worker-0", "worker-4")


@pytest.mark.parametrize(
    ("workers", "message"), [(0, "less than --min_workers=1"), (5, "more than --max_workers=4")]
)
def test_scaling_out_of_bounds(workers: int, message: str) -> None:
    with pytest.raises(ConfigError, match=f"workers={workers} is {message}"):
        DesiredProcesses(workers=2, servers=1, least=1, most=4).scale(workers, 0.0)


def test_spares_run_beside_the_workers_and_are_replaced_too() -> None:
    launcher = Launcher(DesiredProcesses(workers=2, servers=0, spares=1))
    assert launcher.names == ("worker-0", "worker-1", "worker-2")
    assert launcher.poll(killed("worker-0"))[0].replacement == "worker-3"
    assert launcher.names == ("worker-1", "worker-2", "worker-3")


def test_no_worker_runs_before_it_is_known_how_many_have_room() -> None:
    desired = DesiredProcesses(workers=2, servers=1)
    assert desired.names(0.0) == ("ps-0",)
    desired.on_status([], [], 1, 0.0)
    assert (desired.names(0.0), desired.waiting(0.0)) == (("ps-0", "worker-0"), 1)


def test_who_only_starts_is_let_go_before_who_trains() -> None:
    launcher = Launcher(DesiredProcesses(workers=3, servers=0))
    launcher.desired.note_ready("worker-2")
    launcher.desired.scale(1, launcher.now)
    assert launcher.names == ("worker-2",)
    assert launcher.desired.take_dismissed() == ["worker-0", "worker-1"]
    assert launcher.desired.take_dismissed() == []


def test_a_worker_that_waits_for_its_turn_is_still_wanted() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=0))
    launcher.poll(killed("worker-0"))
    (loss,) = launcher.poll(killed("worker-1"), after_s=1.0)
    assert loss.delay_s > 0
    assert (launcher.names, launcher.desired.waiting(launcher.now)) == ((), 1)


def test_no_more_run_than_have_room_and_the_rest_waits() -> None:
    launcher = Launcher(DesiredProcesses(workers=3, servers=1))
    launcher.room = 1
    launcher.poll()
    assert (launcher.names, launcher.desired.waiting(launcher.now)) == (("ps-0", "worker-0"), 2)
    launcher.room = 2
    launcher.poll()
    assert (launcher.names, launcher.desired.waiting(launcher.now)) == (("ps-0", "worker-0", "worker-3"), 1)
    launcher.room = 0
    launcher.poll()
    assert (launcher.names, launcher.desired.waiting(launcher.now)) == (("ps-0",), 3)


def test_a_worker_that_hangs_is_replaced_and_named_until_it_is_gone() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=0))
    loss = launcher.desired.retire("worker-0", "hung", launcher.now)
    assert loss is not None
    assert (loss.reason, loss.replacement) == ("hung", "worker-1")
    assert launcher.desired.retire("worker-0", "hung", launcher.now) is None
    launcher.desired.on_status(["worker-0", "worker-1"], [], None, launcher.now)
    assert launcher.desired.hung == {"worker-0"}
    assert launcher.poll(killed("worker-0")) == []
    assert launcher.desired.hung == set()


@pytest.mark.parametrize("name", ["worker-0", "ps-0"])
@pytest.mark.parametrize("is_unreachable", [True, False])
def test_what_a_lost_node_had_was_taken_away(name: str, is_unreachable: bool) -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=1))
    loss = launcher.desired.retire(name, "nothing heard", launcher.now, is_unreachable=is_unreachable)
    assert loss is not None
    assert loss.is_explained == is_unreachable


def test_a_server_that_is_given_up_ends_before_its_next_life_begins() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=1))
    loss = launcher.desired.retire("ps-0", "nothing heard", launcher.now)
    assert loss is not None
    assert (loss.reason, loss.replacement, loss.failure) == ("nothing heard", "ps-0", None)
    assert launcher.desired.retire("ps-0", "nothing heard", launcher.now) is None
    launcher.desired.on_status(["ps-0", "worker-0"], [], None, launcher.now)
    assert (launcher.names, launcher.desired.hung) == (("worker-0",), {"ps-0"})
    assert launcher.desired.on_status(["worker-0"], [killed("ps-0", 3)], None, launcher.now) == []
    assert launcher.names == ("ps-0", "worker-0")


# ---------------------------------------------------------------- the next master


def test_the_next_master_goes_on_with_ids_and_target() -> None:
    launcher = Launcher(DesiredProcesses(workers=2, servers=1))
    launcher.poll(killed("worker-0"))
    launcher.desired.scale(3, launcher.now)
    desired = launcher.names
    after = DesiredProcesses(workers=2, servers=1, record=launcher.desired.record)
    assert after.names(0.0) == desired
    assert after.scale(4, 0.0) == 3
    assert after.names(0.0) == (*desired, "worker-4")


def test_a_job_that_is_resumed_with_another_number_has_that_number() -> None:
    record = Launcher(DesiredProcesses(workers=2, servers=1)).desired.record
    assert Launcher(DesiredProcesses(workers=1, servers=1, record=record)).names == ("ps-0", "worker-0")


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
    launcher = Launcher(DesiredProcesses(workers=2, servers=2, relaunches=1_000))
    used: set[str] = set()
    for launches, (kind, number) in enumerate(events, 1):
        workers = [name for name in launcher.names if name.startswith("worker")]
        name = workers[number % len(workers)] if workers else "worker-99"
        if kind in ("kill", "fail", "twice"):
            end = failed(name) if kind == "fail" else killed(name, launches)
            gone = launcher.poll(end, *([end] if kind == "twice" else []))
            assert len(gone) == (1 if workers else 0)
            used |= {loss.name for loss in gone}
        elif kind == "kill ps":
            assert launcher.poll(killed(f"ps-{number}", launches))[0].replacement == f"ps-{number}"
        elif kind == "scale":
            launcher.desired.scale(number, launcher.now)
        elif kind == "room":
            launcher.room = number
        elif kind == "hang" and workers:
            launcher.desired.retire(name, "hung", launcher.now)
            used.add(name)
        elif kind == "master":
            launcher.desired = DesiredProcesses(
                workers=2, servers=2, relaunches=1_000, record=launcher.desired.record
            )
        launcher.poll()
        assert not used & set(launcher.names), "an id has come back"
    launcher.room = None
    launcher.poll()
    workers = [name for name in launcher.names if name.startswith("worker")]
    assert len(workers) == launcher.desired.target
    assert launcher.names[:2] == ("ps-0", "ps-1")


def test_an_end_that_was_seen_to_is_nobodys_failure() -> None:
    launcher = Launcher(DesiredProcesses(workers=2, servers=0, relaunches=0))
    full = ProcessExit(name="worker-0", code=137, cause="out of memory", is_remedied=True)
    (loss,) = launcher.poll(full)
    assert (loss.replacement, loss.failure) == ("worker-2", None)
    (loss,) = launcher.poll(ProcessExit(name="worker-1", code=137, cause="out of memory"))
    assert loss.replacement == ""


# ---------------------------------------------------------------- losses without end

ENDS = ("exit 0", "exit 3", "SIGKILL", "SIGSEGV", "preempted", "out of memory", "unknown", "hung")


def ended(how: str, name: str, launch: int) -> ProcessExit:
    code = {"exit 0": 0, "exit 3": 3, "preempted": 143}.get(how)
    number = {"SIGKILL": 9, "SIGSEGV": 11, "out of memory": 9}.get(how)
    cause = how if how in ("preempted", "out of memory") else ""
    return ProcessExit(name=name, code=code, signal=number, reason=how, launch=launch, cause=cause)


def lose(launcher: Launcher, name: str, how: str, launch: int) -> list[Loss]:
    if how == "hung" and name.startswith("worker"):
        loss = launcher.desired.retire(name, "hung: no progress", launcher.now)
        return [loss] if loss else []
    return launcher.poll(ended(how, name, launch))


@example(role="ps", hows=["preempted"], lives_s=[1.0], workers=1, has_tasks=False, master_ends=[2])
@example(role="worker", hows=["preempted"], lives_s=[1.0], workers=1, has_tasks=False, master_ends=[2])
@given(
    role=st.sampled_from(["worker", "ps"]),
    hows=st.lists(st.sampled_from(ENDS), min_size=1, max_size=8),
    lives_s=st.lists(st.floats(0.5, 10_000.0), min_size=1, max_size=8),
    workers=st.integers(1, 3),
    has_tasks=st.booleans(),
    master_ends=st.lists(st.integers(1, 100), max_size=2),
)
def test_endless_losses_without_progress_end(
    role: str,
    hows: list[str],
    lives_s: list[float],
    workers: int,
    has_tasks: bool,
    master_ends: list[int],
) -> None:
    launcher = Launcher(DesiredProcesses(workers=workers, servers=1))
    launcher.is_vain = True
    for n in range(MOST_TAKEN * workers + 1):
        if n in master_ends:
            launcher.desired = DesiredProcesses(workers=workers, servers=1, record=launcher.desired.record)
            launcher.achieved = 0  # each master counts from its own start
        launcher.poll(after_s=LONGEST_DELAY_S)
        launcher.poll(after_s=lives_s[n % len(lives_s)])
        names = [name for name in launcher.names if name.startswith(role)]
        assert names, "nobody is left, and the job has not failed"
        launcher.busy = names if has_tasks else ()
        (loss,) = lose(launcher, names[n % len(names)], hows[n % len(hows)], n + 1)
        if loss.failure is not None:
            assert names[n % len(names)] in loss.failure.text
            return
    raise AssertionError("the job goes on for ever")


@given(
    st.lists(
        st.tuples(st.sampled_from(["worker", "ps"]), st.integers(0, 3), st.sampled_from(ENDS)),
        min_size=50,
        max_size=150,
    )
)
def test_losses_with_progress_in_between_never_fail_a_job(losses: list[tuple[str, int, str]]) -> None:
    launcher = Launcher(DesiredProcesses(workers=3, servers=2))
    for n, (role, number, how) in enumerate(losses):
        launcher.poll(after_s=LONGEST_DELAY_S)
        launcher.poll(after_s=1.0)
        names = [name for name in launcher.names if name.startswith(role)]
        (loss,) = lose(launcher, names[number % len(names)], how, n + 1)
        assert loss.failure is None
        assert loss.replacement


def test_many_workers_that_are_taken_away_at_once_count_once_each() -> None:
    launcher = Launcher(DesiredProcesses(workers=50, servers=0))
    launcher.is_vain = True
    for round_ in range(MOST_TAKEN - 1):
        launcher.poll(after_s=LONGEST_DELAY_S)
        launcher.poll()
        exits = [ended("preempted", name, round_ + 1) for name in launcher.names]
        assert len(exits) == 50
        assert all(loss.replacement and loss.failure is None for loss in launcher.poll(*exits))


def test_who_ends_with_a_task_in_hand_is_not_held_against_the_workers() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=0, relaunches=1))
    launcher.is_vain = True
    for number in range(MOST_VAIN - 1):
        launcher.busy = (f"worker-{number}",)
        (loss,) = launcher.poll(ended("SIGSEGV", f"worker-{number}", number + 1))
        assert loss.replacement == f"worker-{number + 1}"
        launcher.poll(after_s=LONGEST_DELAY_S)


def test_the_failure_says_how_often_it_was_tried() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=0))
    launcher.is_vain = True
    for number in range(MOST_VAIN):
        (loss,) = launcher.poll(killed(f"worker-{number}"))
        launcher.poll(after_s=LONGEST_DELAY_S)
    assert loss.failure is not None
    assert loss.failure.text == f"no worker is left: worker-9 {KILLED}, like 9 before it in its place"


def test_pauses_grow_while_nothing_is_achieved_however_long_the_lives() -> None:
    launcher = Launcher(DesiredProcesses(workers=1, servers=0))
    launcher.is_vain = True
    delays = []
    for number in range(6):
        delays.append(launcher.poll(killed(f"worker-{number}"), after_s=1000.0)[0].delay_s)
        launcher.poll(after_s=LONGEST_DELAY_S)
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]


def test_what_is_remedied_says_nothing_of_the_task() -> None:
    launcher = Launcher(DesiredProcesses(workers=2, servers=0))
    full = ProcessExit(name="worker-0", code=137, cause="out of memory", is_remedied=True)
    assert launcher.poll(full)[0].is_explained
    assert launcher.poll(ended("preempted", "worker-1", 1))[0].is_explained
    assert not launcher.poll(ended("SIGKILL", "worker-2", 2))[0].is_explained


@pytest.mark.parametrize("workers", [MOST_WORKERS + 1, 2_000_000, 10**30, -1])
def test_nobody_asks_for_millions_of_workers(workers: int) -> None:
    desired = DesiredProcesses(workers=2, servers=1)
    with pytest.raises(ConfigError, match=f"workers={workers} is not within 0..10000, what a job may have"):
        desired.scale(workers, 0.0)
    assert desired.target == 2

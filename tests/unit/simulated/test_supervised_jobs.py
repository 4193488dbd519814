"""Whole simulated jobs whose processes are supervised: the real rounds, launchers and processes that are played."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import msgspec
import pytest

from edlz.services.master.core.processes.live_workers import LiveWorkers
from edlz.services.master.core.processes.silent_servers import SilentServers
from edlz.services.protocol.messages import SupervisorOrders
from edlz.services.supervision import reconciler
from edlz.services.supervision.reconciler import Action, Reconciler
from tests.schedules import (
    beginning_schedule,
    contended_schedule,
    ending_schedule,
    random_schedule,
    with_checkpoints,
    with_supervision,
)
from tests.simulation.job import Fault, Schedule, SimulatedJob, Violation

HOMES = ("machine", "pods")
LIMIT_S = 1000.0  # no job here takes so long


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    "make",
    [random_schedule, ending_schedule, contended_schedule, beginning_schedule],
    ids=lambda f: f.__name__,
)
def test_every_promise_holds_whoever_runs_the_processes(
    make: Callable[[int, str], Schedule], mode: str, home: str
) -> None:
    for seed in range(6):
        SimulatedJob(with_supervision(make(seed, mode), home)).run()


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_lost_disks_are_made_up_for_by_checkpoints(mode: str, home: str) -> None:
    for seed in range(6):
        SimulatedJob(with_supervision(with_checkpoints(random_schedule(seed, mode)), home)).run()


@pytest.mark.slow
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_many_supervised_jobs(mode: str, home: str) -> None:
    for seed in range(6, 250):
        for make in (random_schedule, ending_schedule, contended_schedule, beginning_schedule):
            SimulatedJob(with_supervision(make(seed, mode), home)).run()


def job_of(home: str, *faults: Fault, **changes: object) -> Schedule:
    """A job of a minute and more."""
    about = Schedule(3, "sync", 2, 1, (4,) * 24, 2, 2, home=home, faults=faults)
    return dataclasses.replace(about, **changes)  # type: ignore[arg-type]


def told(job: SimulatedJob, text: str) -> list[str]:
    return [line for line in job.log if text in line]


@pytest.mark.parametrize("home", HOMES)
def test_a_lost_worker_is_replaced_under_another_name_and_a_server_under_its_own(home: str) -> None:
    faults = (Fault(25, "kill", "w0"), Fault(30, "kill", "p1"))
    job = SimulatedJob(job_of(home, *faults)).run()
    assert told(job, "worker-2 starts in its place")
    assert told(job, "ps-1 starts again")
    assert "w2" in job.address
    assert "w3" not in job.address


@pytest.mark.parametrize("home", HOMES)
def test_a_spare_takes_over(home: str) -> None:
    job = SimulatedJob(job_of(home, Fault(25, "kill", "w0"), spares=1)).run()
    assert told(job, "a spare takes over; worker-3 starts as the next one")
    assert told(job, "has taken over after")


@pytest.mark.parametrize("home", HOMES)
def test_a_job_grows_and_shrinks(home: str) -> None:
    job = SimulatedJob(job_of(home, scales=((15.0, 4), (40.0, 1)), lengths=(4,) * 48)).run()
    assert told(job, "2 -> 4 workers.")
    assert told(job, "4 -> 1 workers.")
    assert len(told(job, "leaves; it is not wanted any more.")) == 3


def test_no_more_workers_than_have_room() -> None:
    job = SimulatedJob(job_of("machine", workers=3, rooms=((0.0, 1), (30.0, 2)), lengths=(4,) * 48)).run()
    assert "w1" in job.address
    assert not {"w2", "w3"} & job.address.keys()


@pytest.mark.parametrize("home", HOMES)
def test_who_hangs_is_given_up_and_replaced(home: str) -> None:
    job = SimulatedJob(job_of(home, hangs=((5, 2),))).run()
    assert len(told(job, "hung: no progress for 6")) == 1
    assert len(told(job, "starts in its place")) == 1


@pytest.mark.parametrize("role", ["w0", "p0"])
@pytest.mark.parametrize("kind", ["stall", "apart"])
def test_what_runs_on_a_lost_node_is_given_up_as_soon_as_that_is_known(kind: str, role: str) -> None:
    for seed in range(4):
        job = SimulatedJob(job_of("pods", Fault(25, kind, role, 60.0), seed=seed)).run()
        if job.given_up:
            assert told(job, "its node does not answer" if role == "p0" else "starts in its place")
            return
    raise AssertionError("no node was lost")


# ---------------------------------------------------------------- rules


def breaks(schedule: Schedule) -> bool:
    try:
        job = SimulatedJob(schedule).run()
    except (Violation, AssertionError):
        return True
    (complete,) = told(job, "job complete")
    return float(complete.split()[0]) > LIMIT_S


def launches_all(room: int, launch: Sequence[str]) -> tuple[str, ...]:
    return tuple(launch)


def knows_all_of_now(core: Reconciler, orders: SupervisorOrders, running: Sequence[str]) -> Action:
    """What ran when the status was made, and the exits that it has not told, are forgotten meanwhile."""
    told = len(core._in_flight.exits) if core._in_flight else 0
    untold, core._untold = core._untold[told:], core._untold[:told]
    core._in_flight = msgspec.structs.replace(core._in_flight, running=())
    action = ON_ORDERS(core, orders, running)
    core._untold = untold
    return action


ON_ORDERS = Reconciler.on_orders
NODE_LOST = job_of("pods", Fault(25, "apart", "p0", 1500.0))

RULES: dict[str, tuple[object, str, object, Iterable[Schedule]]] = {
    "a worker that hangs is given up": (
        LiveWorkers,
        "give_up",
        lambda *_: iter(()),
        [job_of("machine", hangs=((5, 2),))],
    ),
    "a server whose node is lost is given up": (SilentServers, "on_tick", lambda *_: [], [NODE_LOST]),
    "no worker starts beyond the room": (
        reconciler,
        "_within",
        launches_all,
        [
            job_of("machine", workers=3, rooms=((0.0, 3), (30.0, 1), (30.7, 2)), lengths=(4,) * 48, seed=seed)
            for seed in range(40)
        ],
    ),
    "a name whose end the master does not know is not started again": (
        Reconciler,
        "on_orders",
        knows_all_of_now,
        [
            job_of("machine", *(Fault(20 + n, "kill", "w0") for n in range(12)), seed=seed)
            for seed in range(40)
        ],
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_the_rule_a_promise_breaks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, broken, schedules = RULES[rule]
    with monkeypatch.context() as without:
        without.setattr(owner, name, broken)
        found = next(filter(breaks, schedules), None)
    assert found is not None, "every promise holds without the rule"
    assert not breaks(found), f"a promise breaks with the rule, too: {found}"

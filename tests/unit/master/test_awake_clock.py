"""A master that stood still takes nobody for silent when it wakes up."""

import pytest

from edlz.services.master.awake_clock import AwakeClock
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.master.core.processes.live_workers import HANG_S
from edlz.services.master.core.vocabulary.inputs import Request, Start, Tick
from edlz.services.master.core.vocabulary.instructions import Announce
from edlz.services.master.core.vocabulary.records import FleetRecord, JournalState
from edlz.services.protocol.messages import SupervisorStatus, WorkerStatus
from tests import builders
from tests.statuses import partition_status

PLAN = builders.plan(4, mode="async")
TICK_S = 0.25


class Played:
    """Time as it is played."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_too_long_between_two_readings_is_left_out() -> None:
    time = Played()
    clock = AwakeClock(time)
    time.now += 1.5
    assert clock() == 1001.5
    time.now += 302.0
    assert clock() == 1003.5
    assert (clock.take_left_out(), clock.take_left_out()) == (300.0, 0.0)
    time.now += 0.25
    assert clock() == 1003.75


@pytest.mark.parametrize("has_stood_still", [True, False])
def test_a_master_that_stood_still_gives_nobody_up(has_stood_still: bool) -> None:
    time = Played()
    clock = AwakeClock(time)
    desired = DesiredProcesses(1, 1, record=FleetRecord(asked=1, target=1, next_id=1, crew=(0,)))
    job = builders.job(PLAN)
    core = MasterCore(job, JournalState(), desired=desired)
    core.feed(Start(), 0.0)
    core.feed(Request("s", SupervisorStatus(seq=1)), clock())
    core.feed(Request("ps", partition_status(0, incarnation=(1, 1))), clock())
    worker = WorkerStatus(worker="0", boot=1, incarnation=(1, 2), seq=1, era=(0, 0), run="r")
    core.feed(Request("w", worker), clock())
    assert list(core.processes.live.workers) == ["0"]
    still_s = 10 * HANG_S
    steps = [still_s] if has_stood_still else [TICK_S] * round(still_s / TICK_S)
    out = []
    for step_s in steps:
        time.now += step_s
        out += core.feed(Tick(), clock())
    told = [one.text for one in out if isinstance(one, Announce)]
    given_up = [
        text.partition(" ")[0] for text in told if "starts in its place" in text or "starts again" in text
    ]
    assert given_up == ([] if has_stood_still else ["worker-1", "ps-0"])
    assert (
        any(isinstance(one, Announce) and "nothing heard" in one.text for one in out) is not has_stood_still
    )

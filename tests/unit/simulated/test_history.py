"""The curves of simulated jobs: masters are killed at each moment, and nothing is missing in them, and nothing twice."""

import itertools

import pytest

from edlz.services.master.progress.curves import Curves
from tests.simulation.history import HISTORY_MOMENTS, DrawnJob
from tests.simulation.job import Fault, Schedule
from tests.simulation.schedule import BEGINNING_MOMENTS, MOMENTS

TASKS = 16
KILLS = ("", *BEGINNING_MOMENTS, "running", *HISTORY_MOMENTS, *MOMENTS[:-1])


def drawn(mode: str, seed: int, *faults: Fault) -> Curves:
    """Run a job; return its curves, which follow each other without a gap."""
    job = DrawnJob(Schedule(seed, mode, 2, 1, (4,) * TASKS, 2, 2, has_callbacks=True, faults=faults))
    job.run()
    assert sum(" FAULT " in line for line in job.log) == len(faults), "a moment that never came"
    curves = job.progress.curves
    assert len(curves.rows) > 3
    for before, row in itertools.pairwise(curves.rows):
        assert row.at - row.span_s == pytest.approx(before.at)
        assert row.records >= 0
        assert row.loss_count >= 0
        assert row.version >= 0
    return curves


def totals(curves: Curves) -> tuple[int, int]:
    """Return the records and the losses of all rows, with the one that is being measured."""
    opened = curves._open
    assert opened is not None
    records = sum(row.records for row in curves.rows) + opened.records
    return records, sum(row.loss_count for row in curves.rows) + opened.loss_count


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("moment", KILLS)
def test_a_master_that_is_killed_leaves_no_gap_and_nothing_twice(mode: str, moment: str) -> None:
    seed = KILLS.index(moment)
    again = Fault(20 + seed, "kill", "m", during="running")
    curves = drawn(mode, seed, Fault(0, "kill", "m", during=moment), again)
    records, losses = totals(curves)
    reached = curves._end
    assert reached is not None
    assert records == reached.records == 4 * TASKS
    assert losses == reached.losses.count == 4 * TASKS


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("role", ["m", "p0"])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_computed_again_is_no_loss_twice(mode: str, role: str, seed: int) -> None:
    """A parameter server goes back; its master is killed at the same time, or is stalled and writes too late."""
    faults = (
        Fault(12 + seed, "kill", "p1", during="running"),
        Fault(12 + seed, "kill", role, during="running"),
        Fault(25, "stall", "m", 40, during="running"),
    )
    records, losses = totals(drawn(mode, seed, *faults))
    assert records >= 4 * TASKS
    assert losses <= 4 * TASKS

"""A master that ends at each start, before the job gets any further."""

from typing import Any

from edlz.services import strict_json
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.terms import MOST_VAIN_TERMS
from edlz.services.master.core.vocabulary.inputs import Start, Tick
from edlz.services.master.core.vocabulary.instructions import Journal
from edlz.services.master.core.vocabulary.records import JournalState
from tests import builders
from tests.simulation.job import Fault, Schedule, SimulatedJob

PLAN = builders.plan(6, mode="async")
JOB = builders.job(PLAN, name="job", run="1")


class Masters:
    """One master after the other, with a journal."""

    def __init__(self) -> None:
        self.journal: dict[str, object] = {}

    def start(self) -> MasterCore:
        state = strict_json.decode(strict_json.encode(self.journal), JournalState)
        core = MasterCore(JOB, state)
        self.carry_out(core.feed(Start(), 0.0))
        return core

    def carry_out(self, instructions: list[Any]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Journal):
                self.journal |= instruction.fields


def test_masters_that_achieve_nothing_end_the_job_and_a_resumed_one_begins_anew() -> None:
    masters = Masters()
    for _ in range(2):
        for _ in range(MOST_VAIN_TERMS):
            core = masters.start()
            masters.carry_out(core.feed(Tick(), 1.0))
            assert core.verdict.failure is None
        core = masters.start()
        assert core.verdict.failure is not None
        assert (
            core.verdict.failure.text
            == "its master was started 10 times in a row, and the job got no further"
        )
        assert core.verdict.is_over
        masters.carry_out(core.feed(Tick(), 1.0))


def test_a_master_that_achieves_something_is_forgiven() -> None:
    masters = Masters()
    for n in range(5 * MOST_VAIN_TERMS):
        core = masters.start()
        if n % MOST_VAIN_TERMS == 3:
            core.work.evaluation.reported += 1
        masters.carry_out(core.feed(Tick(), 1.0))
        assert core.verdict.failure is None


def test_what_an_earlier_master_has_skipped_is_nothing_achieved() -> None:
    masters = Masters()
    masters.journal["ends"] = ((1, 0),)
    core = masters.start()
    assert (core.achieved, core.furthest) == (0, 0)
    masters.carry_out(core.feed(Tick(), 1.0))
    assert masters.journal["vain_terms"] == 1


def test_evaluation_gets_the_job_on_between_losses_of_a_server() -> None:
    core = Masters().start()
    core.work.evaluation.reported += 1
    assert (core.achieved, core.furthest) == (1, 1)


def test_a_job_whose_master_is_killed_all_day_succeeds() -> None:
    faults = tuple(Fault(10.0 + 15.0 * n, "kill", "m") for n in range(30))
    job = SimulatedJob(Schedule(3, "async", 2, 2, (12,) * 24, 2, 2, faults=faults)).run()
    assert job.journal["is_complete"]

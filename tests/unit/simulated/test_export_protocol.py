"""The finished model is exported once, whoever is lost meanwhile: real cores, simulated time and folders."""

import itertools
from typing import Any

import pytest

from tests.schedules import exporting_schedule
from tests.simulation.job import Fault, Schedule, SimulatedJob

SHORT = {"slots": 2, "epochs": 1, "lengths": (2, 1, 1), "partitions": 2, "workers": 2, "exports": True}


def run(**fields: Any) -> SimulatedJob:
    return SimulatedJob(Schedule(**{"seed": 3, "mode": "sync", **SHORT, **fields})).run()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_undisturbed(mode: str, workers: int) -> None:
    job = run(mode=mode, workers=workers, evaluation_tasks=2, checkpoint_steps=2)
    assert len(job.exports) == 1


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("moment", ["digest", "exporting", "published", "exported", "complete"])
@pytest.mark.parametrize("roles", ["m", "w0", "w1", "p0", "mw0", "mw1", "p0p1", "w0w1", "mp1w0"])
def test_a_kill_at_each_instant(mode: str, moment: str, roles: str) -> None:
    for seed, delay in enumerate((0.0, 0.2, 0.9)):
        lost = [
            roles[i : i + 2] if roles[i] != "m" else "m" for i in range(len(roles)) if not roles[i].isdigit()
        ]
        faults = tuple(
            Fault(delay * (place + 1), "kill", role, during=moment) for place, role in enumerate(lost)
        )
        job = run(mode=mode, seed=seed, faults=faults)
        assert len(job.exports) == 1


@pytest.mark.parametrize("seconds", [2.0, 15.0, 40.0])
@pytest.mark.parametrize("moment", ["exporting", "published"])
def test_an_exporter_that_stops_for_a_while(moment: str, seconds: float) -> None:
    """It may be given up, and wakes up when another one has exported the model, or while it does."""
    for seed, delay in itertools.product(range(2), (0.0, 0.5, 1.5)):
        faults = tuple(Fault(delay, "stall", role, seconds, during=moment) for role in ("w0", "w1"))
        assert len(run(seed=seed, faults=faults[: 1 + seed % 2]).exports) == 1


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_meanwhile(mode: str, seed: int) -> None:
    SimulatedJob(exporting_schedule(seed, mode)).run()


CALLBACKS = {"has_callbacks": True, "decides": True, "evaluation_tasks": 1, "lengths": (2, 1, 1, 2, 2, 1)}


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("killed", ["", "m", "w0", "p0"])
def test_a_job_that_ends_before_its_plan(mode: str, killed: str) -> None:
    """Its partitions seal fewer tasks than the plan has: callbacks have stopped it, or --max_step."""
    faults = tuple(Fault(0.5, "kill", role, during="exporting") for role in [killed] if role)
    stopped = {**CALLBACKS, "evaluation_steps": 1, "stops_behind": 1}
    for changes in (stopped, {"lengths": (4, 4, 4), "max_step": 6}):
        job = run(mode=mode, faults=faults, **changes)
        assert job.journal["task_count"] < job.plan.task_count
        assert job.exports
        if mode == "sync" or "max_step" in changes:  # else all tasks may have been in hand
            assert job.journal["task_count"]


@pytest.mark.parametrize("killed", ["", "m", "w0", "p0"])
def test_the_version_that_callbacks_have_put_back_is_exported(killed: str) -> None:
    faults = tuple(Fault(0.5, "kill", role, during="exporting") for role in [killed] if role)
    job = run(faults=faults, keeps_best=True, stops_behind=2, evaluation_steps=1, **CALLBACKS)
    assert job.journal["rounds"][-1].decision.result >= 0
    assert len(job.exports) == 1


def test_what_stands_in_the_journal_is_not_exported_again() -> None:
    """A master that is killed between the report and the end of the job knows what there is."""
    for delay in (0.0, 0.05, 0.1, 0.3):
        job = run(
            faults=(
                Fault(delay, "kill", "m", during="exported"),
                Fault(delay, "kill", "p0", during="exported"),
            )
        )
        assert job.journal["exported"].place == "out/1"
        assert len(job.exports) == 1


def test_an_export_that_always_ends_its_worker_ends_the_job() -> None:
    class Deadly(SimulatedJob):
        def carry_out(self, process: Any, instructions: list[Any]) -> None:
            super().carry_out(process, instructions)
            if any(type(each).__name__ == "ExportModel" for each in instructions):
                self.within(0.1, 0.5, self.die, process.name)

    job = Deadly(Schedule(seed=3, mode="sync", home="machine", **SHORT))
    with pytest.raises(Exception, match=r"that ended its worker 3 times \(workers \d, \d, \d\)"):
        job.run()
    assert not job.exports or not job.journal["is_complete"]

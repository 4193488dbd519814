"""A model that does not stand its check: the job ends by it once and for all, whoever is killed meanwhile."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

from edlz.api.recordio import Writer
from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.tasks.task_failures import failure_of_worker
from edlz.services.master.core.vocabulary.inputs import Request, Start
from edlz.services.master.core.vocabulary.instructions import Journal, Reply
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.master.planning import open_journal
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import NO_IDENTITY, Failure, WorkerOrders, WorkerStatus
from tests import builders
from tests.simulation.job import Fault, Schedule, SimulatedJob

MISTAKE = Failure(
    code="model",
    message="loss() raised ValueError",
    help="reshape the labels",
    where="model.py:7 in loss",
    source="    return labels - predictions",
    error="ValueError: shapes",
    is_mistake=True,
)


@pytest.mark.parametrize("role", ["m", "p0", "w0", "w1"])
@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_refusal_is_final_whoever_is_killed(mode: str, role: str, after_s: float) -> None:
    for seed in range(4):
        job = SimulatedJob(
            Schedule(
                seed=seed,
                mode=mode,
                slots=2 if mode == "sync" else 1,
                epochs=1,
                lengths=(2, 2, 2),
                partitions=1,
                workers=2,
                noise=0.1,
                refuses=True,
                faults=(Fault(after_s, "kill", role, during="refused"),),
            )
        ).run()
        master = job.process("m")
        assert master is not None
        assert master.core.verdict.failure == job.journal["refusal"]
        assert master.core.verdict.failure.exit_code == 2
        assert not master.core.partitions.are_based, "training state exists"


def test_a_mistake_is_told_with_the_line_and_ends_as_a_mistake() -> None:
    view = failure_of_worker(MISTAKE, is_mistake=True)
    assert (view.text, view.where, view.error) == (
        "loss() raised ValueError",
        "model.py:7 in loss",
        "ValueError: shapes",
    )
    assert view.source == "    return labels - predictions"
    assert view.exit_code == 2
    assert failure_of_worker(MISTAKE, is_mistake=False).exit_code == 1


def test_a_line_is_never_shown_without_what_to_do() -> None:
    told = failure_of_worker(msgspec.structs.replace(MISTAKE, help=""), is_mistake=True)
    assert told.help == "correct that line, then start the job again"
    elsewhere = msgspec.structs.replace(MISTAKE, help="", where="")
    assert failure_of_worker(elsewhere, is_mistake=True).help == ""


PLAN = builders.plan(6, mode="async")


def answer_to_new_worker(core: MasterCore) -> WorkerOrders:
    status = WorkerStatus(worker="0", boot=1, incarnation=None, seq=1, era=NO_IDENTITY)
    (reply,) = [one for one in core.feed(Request("w0", status), 1.0) if isinstance(one, Reply)]
    assert isinstance(reply.body, WorkerOrders)
    return reply.body


def test_who_comes_before_anything_is_trained_checks_the_model_and_nobody_after_a_refusal() -> None:
    job = builders.job(PLAN, name="job", run="1")
    core = MasterCore(job, JournalState())
    core.feed(Start(), 0.0)
    assert answer_to_new_worker(core).check
    core = MasterCore(job, JournalState(term=1, refusal=failure_of_worker(MISTAKE, is_mistake=True)))
    core.feed(Start(), 0.0)
    assert core.verdict.failure == failure_of_worker(MISTAKE, is_mistake=True)
    assert answer_to_new_worker(core).stop


@pytest.mark.parametrize(
    ("launch", "is_kept"), [("same", True), ("another", False)], ids=["restarted", "started"]
)
def test_a_master_that_is_restarted_keeps_the_refusal_and_a_new_start_tries_again(
    tmp_path: Path, launch: str, is_kept: bool
) -> None:
    with Writer(tmp_path / "data") as writer:
        writer.write(b"1")
    config = JobConfig(
        model_def="m.m", training_data=str(tmp_path / "data"), job_dir=str(tmp_path), launch_id="same"
    )
    journal, _ = open_journal(config, tmp_path)
    view = FailureView(text="a mistake", exit_code=2)
    journal.write(1, {"term": 1, "refusal": view})
    journal.close()
    journal, _ = open_journal(dataclasses.replace(config, launch_id=launch), tmp_path)
    assert journal.state().refusal == (view if is_kept else None)
    journal.close()


def test_a_mistake_that_others_did_not_meet_is_a_failure_of_the_job() -> None:
    """A node that lacks a package, say: the job has trained, and another start may go on with it."""
    core = MasterCore(builders.job(PLAN, name="job", run="1"), JournalState())
    core.feed(Start(), 0.0)
    core.work.evaluation.reported += 1
    orders = answer_to_new_worker(core)
    assert not orders.check
    told = WorkerStatus(
        worker="0", boot=1, incarnation=orders.incarnation, seq=2, era=NO_IDENTITY, run="1", failure=MISTAKE
    )
    out = core.feed(Request("w0", told), 2.0)
    assert core.verdict.failure is not None
    assert core.verdict.failure.exit_code == 1
    assert not any(isinstance(one, Journal) and "refusal" in one.fields for one in out)

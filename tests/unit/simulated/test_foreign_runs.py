"""Processes of another run, whose terms, lives and numbers may be the same: nobody believes them."""

import dataclasses

import msgspec
import pytest

from edlz.services.errors import EdlzError, RemoteProtocolError
from edlz.services.master.core import master as master_core
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary import inputs as master_inputs
from edlz.services.master.core.vocabulary import instructions as master_instructions
from edlz.services.master.core.vocabulary.records import JournalState
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    Exchange,
    Granted,
    Identity,
    NewestPull,
    PartitionOrders,
    ReadTables,
    ReadVector,
    Refused,
    SupervisorOrders,
    WorkerStatus,
)
from edlz.services.ps.core import partition
from edlz.services.ps.core.inputs import Request
from edlz.services.ps.core.instructions import Reply
from edlz.services.supervision.reconciler import Reconciler
from tests.bare_partition import bare_partition, become_based, initial_values, job_of
from tests.schedules import random_schedule
from tests.simulation.job import Fault, SimulatedJob, Violation
from tests.statuses import partition_status

JOB = job_of("new")
OLD: Identity = (1, 7)


def master() -> MasterCore:
    core = MasterCore(JOB, JournalState())
    core.feed(master_inputs.Start(), 0.0)
    return core


@pytest.mark.parametrize("term", [1, 3])
def test_a_master_refuses_a_partition_of_another_run(term: int) -> None:
    core = master()
    full = LedgerRecord(finished=(0, 10), minibatches=40)
    old = partition_status(incarnation=OLD, term=term, version=40, ledger=full, run="old", is_sealed=True)
    with pytest.raises(RemoteProtocolError, match=r'ps-0 belongs to run old .* leads run new of job "j"'):
        core.feed(master_inputs.Request(0, old), 0.0)
    assert not core.partitions.entries
    (*_, answer) = core.feed(
        master_inputs.Request(0, partition_status(incarnation=None, has_base=False, run="")), 0.0
    )
    assert isinstance(answer, master_instructions.Reply)
    assert isinstance(answer.body, Granted)
    joined = partition_status(incarnation=answer.body.incarnation, seq=2, run="new")
    (*_, answer) = core.feed(master_inputs.Request(0, joined), 0.0)
    assert isinstance(answer, master_instructions.Reply)
    assert isinstance(answer.body, PartitionOrders)
    assert not answer.body.stop


def test_a_master_refuses_a_worker_of_another_run() -> None:
    core = master()
    old = WorkerStatus(worker="0", boot=1, incarnation=OLD, seq=9, era=NO_IDENTITY, run="old")
    with pytest.raises(RemoteProtocolError, match="worker-0 belongs to run old"):
        core.feed(master_inputs.Request(0, old), 0.0)
    assert not core.processes.live.workers
    core.feed(master_inputs.Request(0, msgspec.structs.replace(old, run="new")), 0.0)
    assert core.processes.live.workers


@pytest.mark.parametrize("run", ["old", "", "new"])
def test_a_partition_answers_only_who_names_its_run(run: str) -> None:
    server = bare_partition("new", (1, 1))
    bare = [
        initial_values(run),
        Exchange(era=NO_IDENTITY, incarnation=(1, 1), version=0, run=run),
        *(NewestPull(run=run), ReadVector(vector="dense", first=0, count=1, run=run), ReadTables(run=run)),
    ]
    not_ready = [Reply("x", Refused(reason="not ready"))]
    for body in bare[1:]:
        assert server.feed(Request("x", body), 0.0) == not_ready
    out = server.feed(Request("x", bare[0]), 0.0)
    if run != "new":
        assert out == not_ready
        out = server.feed(Request("x", initial_values("new")), 0.0)
    become_based(server, out, (1, 1))
    for body in bare:
        answered = server.feed(Request("x", body), 0.0)
        assert (answered == not_ready) == (run != "new"), body


def test_a_supervisor_says_which_run_it_leads_as_soon_as_it_knows() -> None:
    core, supervisor = master(), Reconciler()
    core.feed(master_inputs.Request(0, supervisor.next_status([])), 0.0)
    supervisor.on_orders(SupervisorOrders(term=1, run="old"), [])
    with pytest.raises(RemoteProtocolError, match="a supervisor belongs to run old"):
        core.feed(master_inputs.Request(0, supervisor.next_status([])), 0.0)


def is_harmed(seed: int, mode: str) -> bool:
    """Let another run speak all the time; whether the job breaks a promise by that."""
    schedule = dataclasses.replace(random_schedule(seed, mode), noise=0.0)
    roles = [*(f"p{p}" for p in range(schedule.partitions)), *(f"w{w}" for w in range(schedule.workers))]
    faults = [Fault(at / 4, "foreign", roles[at % len(roles)]) for at in range(10, 160)]
    try:
        SimulatedJob(dataclasses.replace(schedule, faults=tuple(faults))).run()
    except (Violation, AssertionError, EdlzError):
        return True
    return False


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_another_run_that_speaks_all_the_time_does_no_harm(mode: str) -> None:
    assert not any(is_harmed(seed, mode) for seed in range(15))


@pytest.mark.parametrize(("owner", "name"), [(master_core, "check_run"), (partition, "misdirected")])
def test_without_the_run_it_does(owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, lambda *_, **__: None)
    assert any(is_harmed(seed, "sync") for seed in range(50))

"""Two lives of one partition at one address: what the former does not know is not said by it for the other."""

from typing import Any

import msgspec
import pytest

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    Exchange,
    Exchanged,
    Identity,
    Initialise,
    Initialised,
    NewestPull,
    PartitionAddress,
    ReadTables,
    ReadVector,
    Refused,
    TableDigests,
    VectorPart,
)
from edlz.services.ps.core import answers, partition
from edlz.services.ps.core.inputs import Request
from edlz.services.ps.core.instructions import Reply, Write
from edlz.services.ps.core.partition import Partition
from edlz.services.worker.core.instructions import Cancel
from edlz.services.worker.core.partition_directory import PartitionDirectory
from tests.bare_partition import bare_partition, become_based, initial_values
from tests.schedules import beginning_schedule, quiet_schedule
from tests.simulation.job import Fault, Schedule, SimulatedJob, Violation

OWN: Identity = (1, 1)
ANSWERS = {
    Initialise: Initialised,
    NewestPull: Exchanged,
    ReadVector: VectorPart,
    ReadTables: TableDigests,
}


def requests(life: Identity | None) -> list[Message]:
    return [
        initial_values("r", life),
        NewestPull(run="r", incarnation=life),
        ReadVector(vector="dense", first=0, count=1, run="r", incarnation=life),
        ReadTables(run="r", incarnation=life),
    ]


def based_partition() -> Partition:
    server = bare_partition("r", OWN)
    become_based(server, server.feed(Request("x", initial_values("r", OWN)), 0.0), OWN)
    return server


@pytest.mark.parametrize("other", [(1, 2), (2, 1), (0, 9)], ids=str)
def test_a_partition_answers_nothing_that_another_life_is_asked(other: Identity) -> None:
    refused = [Reply("x", Refused(reason="incarnation"))]
    for server in (bare_partition("r", OWN), based_partition()):
        assert all(server.feed(Request("x", body), 0.0) == refused for body in requests(other))
    (write,) = bare_partition("r", OWN).feed(Request("x", initial_values("r", OWN)), 0.0)
    assert isinstance(write, Write)


@pytest.mark.parametrize("life", [OWN, None], ids=str)
def test_it_answers_who_means_its_life_or_names_none(life: Identity | None) -> None:
    server = based_partition()
    for body in requests(life):
        (reply,) = server.feed(Request("x", body), 0.0)
        assert isinstance(reply, Reply)
        assert isinstance(reply.body, ANSWERS[type(body)])


def test_an_exchange_is_answered_in_its_own_way() -> None:
    """The life that it names is that of the vectors in hand: a pull brings those of this one."""
    exchange = Exchange(era=NO_IDENTITY, incarnation=(0, 9), version=0, run="r")
    (reply,) = based_partition().feed(Request("x", exchange), 0.0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, Exchanged)


def breaks(schedule: Schedule) -> bool:
    try:
        SimulatedJob(schedule).run()
    except Violation:
        return True
    return False


def late_riser(seed: int, mode: str) -> Schedule:
    """One partition stalls while it writes its base, and wakes up when its next life waits for initial values."""
    return Schedule(seed, mode, 1, 1, (1,), 1, 1, faults=(Fault(0.0, "stall", "p0", 8.0, during="base"),))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_base_that_a_former_life_has_is_not_its_successors(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(breaks(late_riser(seed, mode)) for seed in range(15))
    monkeypatch.setattr(partition, "misdirected", whoever_is_meant)
    assert any(breaks(late_riser(seed, mode)) for seed in range(15))


def whoever_is_meant(body: Message, run: str, incarnation: Identity | None) -> Refused | None:
    return answers.misdirected(body, run, getattr(body, "incarnation", None))


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seeds", [range(0, 30), range(30, 60)], ids=str)
def test_whoever_is_lost_at_the_beginning_the_job_completes_once(mode: str, seeds: range) -> None:
    for seed in seeds:
        SimulatedJob(beginning_schedule(seed, mode)).run()


def apart(seed: int, mode: str) -> Schedule:
    """The master replaces a partition that it cannot reach any more, and workers' connections still lead there."""
    fault = Fault(seed % 20, "apart", f"p{seed % 2}")
    return quiet_schedule(mode, fault, seed=seed, noise=0.0, snapshot_every_s=2.0)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_whoever_is_connected_with_a_former_life_turns_to_the_new_one(mode: str) -> None:
    for seed in range(15):
        SimulatedJob(apart(seed, mode)).run()


@pytest.mark.parametrize("changes", [{"incarnation": (1, 2)}, {"endpoint": "elsewhere"}], ids=str)
def test_a_worker_hangs_up_when_a_partition_begins_another_life_or_moves(changes: dict[str, Any]) -> None:
    partitions, address = (
        PartitionDirectory(),
        PartitionAddress(index=0, endpoint="here", incarnation=OWN, has_base=False),
    )
    assert partitions.learn((address,)) == ([], [])
    partitions.initialise()
    assert partitions.learn((address,)) == ([], [])
    assert partitions.initialise() == []
    assert partitions.learn((msgspec.structs.replace(address, **changes),)) == ([0], [Cancel(0)])
    assert partitions.initialise(), "what was under way is forgotten"

"""Answers that no master gives: they are refused, or change nothing."""

from typing import Any

import msgspec
import pytest

from edlz.services.errors import ConfigError, RemoteProtocolError
from edlz.services.protocol.messages import (
    CheckpointOrder,
    Granted,
    Identity,
    Job,
    PartitionAddress,
    PartitionOrders,
    WorkerOrders,
)
from edlz.services.protocol.plan import Shard
from edlz.services.ps.core.inputs import Answered
from edlz.services.ps.core.instructions import Write
from edlz.services.ps.core.partition import Partition
from edlz.services.ps.core.standing import Condition
from edlz.services.worker.core.inputs import Ordered, Tick
from edlz.services.worker.core.instructions import Build
from edlz.services.worker.core.order_check import check_orders
from edlz.services.worker.core.worker import WorkerCore
from tests.simulation.job import Schedule, SimulatedJob
from tests.statuses import partition_status

TERM = 9
LIFE: Identity = (TERM, 1)
ASKED = partition_status(incarnation=None)


def next_life(mode: str) -> tuple[Partition, Granted]:
    """A partition that starts again when its job is over, and what makes it join."""
    job = SimulatedJob(
        Schedule(seed=1, mode=mode, slots=1, epochs=1, lengths=(2,), partitions=1, workers=1)
    ).run()
    partition = Partition(0, 99, "here", job.disks[0])
    partition.feed(Answered(ASKED, Granted(term=TERM, incarnation=None)), 0.0)
    return partition, Granted(term=TERM, incarnation=LIFE, job=job.job)


def orders(**fields: object) -> PartitionOrders:
    return msgspec.structs.replace(PartitionOrders(term=TERM, number=1, incarnation=LIFE), **fields)


@pytest.mark.parametrize("has_job", [True, False])
def test_a_job_without_the_partition_is_not_joined(has_job: bool) -> None:
    partition, granted = next_life("sync")
    assert granted.job is not None
    job = msgspec.structs.replace(granted.job, partitions=0) if has_job else None
    with pytest.raises(RemoteProtocolError, match="takes ps-0 into a job that has no such partition"):
        partition.feed(Answered(ASKED, msgspec.structs.replace(granted, job=job)), 0.0)
    assert partition.condition is Condition.JOINING
    partition.feed(Answered(ASKED, granted), 0.0)
    assert partition.condition is Condition.UNRESTORED


def with_unreadable_flag(granted: Granted) -> Job:
    assert granted.job is not None
    return msgspec.structs.replace(granted.job, config={**granted.job.config, "max_step": "many"})


def test_a_partition_joins_no_job_whose_flags_it_cannot_read() -> None:
    partition, granted = next_life("sync")
    odd = msgspec.structs.replace(granted, job=with_unreadable_flag(granted))
    with pytest.raises(RemoteProtocolError, match="max_step"):
        partition.feed(Answered(ASKED, odd), 0.0)
    assert partition.job is None
    partition.feed(Answered(ASKED, granted), 0.0)
    assert partition.condition is Condition.UNRESTORED


def test_a_worker_takes_no_job_whose_flags_it_cannot_read() -> None:
    _, granted = next_life("sync")
    worker = WorkerCore("0", 1)
    worker.feed(Tick(), 0.0)
    odd = WorkerOrders(term=TERM, seq=1, incarnation=LIFE, job=with_unreadable_flag(granted))
    with pytest.raises(RemoteProtocolError, match="max_step"):
        worker.feed(Ordered(odd), 0.0)
    assert worker.job is None
    worker.feed(Tick(), 5.0)
    (build, *_) = worker.feed(Ordered(msgspec.structs.replace(odd, job=granted.job)), 5.0)
    assert isinstance(build, Build)
    assert worker.settings.max_step == 0


def test_looking_at_a_workers_orders_takes_no_memory_for_partitions_that_a_job_may_have() -> None:
    _, granted = next_life("sync")
    assert granted.job is not None
    endless = msgspec.structs.replace(granted.job, partitions=2**62)
    addresses = (PartitionAddress(index=2**62, endpoint="x", has_base=True, incarnation=LIFE),)
    odd = WorkerOrders(term=TERM, seq=1, incarnation=LIFE, partitions=addresses, job=endless)
    with pytest.raises(RemoteProtocolError, match="the master names partitions"):
        check_orders(odd, None, frozenset())


def test_nothing_is_sealed_before_there_is_an_era() -> None:
    partition, granted = next_life("sync")
    partition.feed(Answered(ASKED, granted), 0.0)
    out = partition.feed(Answered(ASKED, orders(seal=True)), 0.0)
    assert not [each for each in out if isinstance(each, Write)]
    assert partition.condition is Condition.UNRESTORED


def test_a_cut_without_its_marks_is_refused() -> None:
    partition, granted = next_life("async")
    partition.feed(Answered(ASKED, granted), 0.0)
    odd = orders(checkpoint=CheckpointOrder(number=1, phase="level"))
    with pytest.raises(RemoteProtocolError, match="the master names no marks for the cut of checkpoint 1"):
        partition.feed(Answered(ASKED, odd), 0.0)
    assert partition._obeyed == 0


@pytest.mark.parametrize(("mode", "phase"), [("sync", "near"), ("async", "cut")])
def test_a_cut_of_the_other_mode_is_refused(mode: str, phase: Any) -> None:
    partition, granted = next_life(mode)
    partition.feed(Answered(ASKED, granted), 0.0)
    with pytest.raises(RemoteProtocolError, match="is of the other mode"):
        partition.feed(Answered(ASKED, orders(checkpoint=CheckpointOrder(number=1, phase=phase))), 0.0)
    assert partition._obeyed == 0


@pytest.mark.parametrize(
    ("records_per_task", "text"), [(1, "would be cut into"), (0, "needs at least one record")]
)
def test_a_plan_without_number_or_end_is_refused_before_it_is_listed(
    records_per_task: int, text: str
) -> None:
    _, granted = next_life("sync")
    assert granted.job is not None
    shard = Shard(name="x", first=0, count=2**62)
    plan = msgspec.structs.replace(granted.job.plan, shards=(shard,), records_per_task=records_per_task)
    job = msgspec.structs.replace(granted.job, plan=plan)
    with pytest.raises(ConfigError, match=text):
        check_orders(WorkerOrders(term=TERM, seq=1, incarnation=LIFE, job=job), None, frozenset())

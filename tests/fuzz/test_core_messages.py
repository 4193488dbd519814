"""Arbitrary well-formed messages of somebody who holds the job's keys: the cores refuse them, or take them, no more."""

import asyncio
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from edlz.services.master.core.vocabulary.inputs import Request, Tick
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol.job_status import StatusRequest
from edlz.services.protocol.messages import (
    Exchange,
    Exchanged,
    Granted,
    Initialise,
    Initialised,
    NewestPull,
    PartitionOrders,
    PartitionStatus,
    ReadTables,
    ReadVector,
    Refused,
    ScaleRequest,
    SupervisorStatus,
    VectorPart,
    WorkerOrders,
    WorkerStatus,
)
from edlz.services.ps.core import inputs as ps_inputs
from edlz.services.ps.core.partition import Partition
from edlz.services.transport.codec import Codec
from edlz.services.transport.rpc import ReplyTo
from edlz.services.worker.core import inputs as worker_inputs
from tests.builders import settings_in
from tests.fuzz.fuzzing import cases, every_case, refusals
from tests.fuzz.message_writer import TEXTS, MessageWriter, made
from tests.simulation.job import SimulatedJob
from tests.simulation.processes import Process
from tests.simulation.schedule import Schedule

pytestmark = pytest.mark.fuzz

A_JOB = 40  # messages that one job is given


def job_under_way(seed: int, mode: str) -> SimulatedJob:
    """A job in the middle of its training."""
    rng = random.Random(seed)
    schedule = Schedule(
        seed=seed,
        mode=mode,
        slots=2,
        epochs=1,
        lengths=(3, 2, 4, 1),
        partitions=2,
        workers=2,
        evaluation_tasks=2,
        evaluation_steps=2,
        has_tables=rng.random() < 0.5,
        checkpoint_steps=rng.choice((0, 2)),
        skips=rng.random() < 0.5,
    )
    job = SimulatedJob(schedule)
    job.run_until(rng.uniform(0, 40))
    return job


def fuzz(core: str, give: Callable[[SimulatedJob, Process, MessageWriter, random.Random], None]) -> None:
    """Give a core messages, a few to each of many jobs."""

    def play(rng: random.Random) -> None:
        job = job_under_way(rng.randrange(2**31), rng.choice(("sync", "async")))
        for _ in range(A_JOB):
            process = job.process(core)
            if process is None:
                return
            with refusals():
                give(job, process, MessageWriter(rng), rng)
            process.core.check_invariants()

    every_case(cases(few=10, full=100_000 // A_JOB), play)


def to_master(job: SimulatedJob, process: Process, writer: MessageWriter, rng: random.Random) -> None:
    body = made(job.network.newest("m"), (PartitionStatus, WorkerStatus), writer, rng)
    process.core.feed(Request(0, body), job.now)
    process.core.feed(Tick(), job.now)


def to_partition(job: SimulatedJob, process: Process, writer: MessageWriter, rng: random.Random) -> None:
    kinds = (Exchange, Initialise, NewestPull, ReadVector, ReadTables)
    process.core.feed(ps_inputs.Request(0, made(job.network.newest("p0"), kinds, writer, rng)), job.now)


def test_a_master_takes_or_refuses_any_message() -> None:
    fuzz("m", to_master)


def test_a_partition_takes_or_refuses_any_message() -> None:
    fuzz("p0", to_partition)


def orders_to_partition(
    job: SimulatedJob, process: Process, writer: MessageWriter, rng: random.Random
) -> None:
    """Answers of somebody who takes himself for the master, to a partition that has joined, or has not."""
    core = process.core
    if rng.random() < 0.2:
        job.disks[0].wipe()
        core = process.core = Partition(0, core.boot + 1, core.endpoint, job.disks[0])
    answer = writer.message(rng.choice((Granted, PartitionOrders, PartitionOrders)))
    if isinstance(answer, Granted):
        if rng.random() < 0.8:
            answer = msgspec.structs.replace(answer, term=core.term, incarnation=(1, 1))
        if rng.random() < 0.5:
            answer = msgspec.structs.replace(answer, job=job.job)
    elif rng.random() < 0.9 and core.incarnation is not None:
        known = {
            "term": core.term,
            "incarnation": core.incarnation,
            "number": core._obeyed + 1,
            "stop": False,
        }
        answer = msgspec.structs.replace(answer, **known, era=rng.choice((core.era, core.era, answer.era)))
    (asked, *_) = [one.body for box in process.outboxes.values() for one in box.under_way.values()] or [
        writer.message(PartitionStatus)
    ]
    core.feed(ps_inputs.Answered(asked, answer), job.now)
    core.feed(ps_inputs.Tick(), job.now)


def test_a_partition_takes_or_refuses_any_answer_of_a_master() -> None:
    fuzz("p0", orders_to_partition)


TO_A_SERVICE = (
    SupervisorStatus,
    SupervisorStatus,
    ScaleRequest,
    StatusRequest,
    WorkerStatus,
    PartitionStatus,
)


async def to_service(service: MasterService, rng: random.Random) -> None:
    """Requests of anybody, as they come from the network; screens look on."""
    service._is_led_here = False
    writer, run, answers = MessageWriter(rng), service._core.job.run, Codec("answers")
    for number in range(A_JOB):
        body = writer.message(rng.choice(TO_A_SERVICE))
        if isinstance(body, SupervisorStatus | WorkerStatus | PartitionStatus) and rng.random() < 0.8:
            body = msgspec.structs.replace(body, run=run)
        if isinstance(body, SupervisorStatus):
            names = [f"{role}-{rng.randrange(3)}" for role in ("ps", "worker", "worker")]
            body = msgspec.structs.replace(body, stop=body.stop and number > A_JOB // 2, running=tuple(names))
            if rng.random() < 0.5:
                notes = dict.fromkeys(rng.sample(names, 1), rng.choice(TEXTS))
                body = msgspec.structs.replace(body, notes=notes, placed=None, crowded=(), unreachable=())
        with refusals():
            service._on_request(ReplyTo(b"x", 1), body)
        answers.encode(service.status(), 1)
        service._core.check_invariants()
        await asyncio.sleep(0)
    assert service._error is None


def test_a_masters_service_takes_or_refuses_any_request() -> None:
    def play(rng: random.Random) -> None:
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(serve(Path(name), rng))

    async def serve(folder: Path, rng: random.Random) -> None:
        config = settings_in(folder, num_ps_pods=2, num_workers=2)
        stop = Stop()

        async def attend(service: MasterService) -> None:
            await to_service(service, rng)
            stop.set(0, "enough")

        await serve_master(config, stop, attend)

    every_case(cases(few=5, full=1000), play)


def to_worker(job: SimulatedJob, process: Process, writer: MessageWriter, rng: random.Random) -> None:
    """A partition's answer to what this worker has asked."""
    asked = [
        (outbox.under_way, number)
        for outbox in process.outboxes.values()
        for number, request in outbox.under_way.items()
        if request.key is not None
    ]
    if asked:
        under_way, number = rng.choice(asked)
        index, key = under_way.pop(number).key  # who asks takes one answer
        answer = writer.message(rng.choice((Exchanged, Exchanged, Refused, Initialised, VectorPart)))
        process.core.feed(worker_inputs.Answered(index, key, answer), job.now)


def orders_to_worker(job: SimulatedJob, process: Process, writer: MessageWriter, rng: random.Random) -> None:
    """Orders of somebody who takes himself for the master."""
    core = process.core
    orders = writer.message(WorkerOrders)
    if rng.random() < 0.8:
        fitting = {
            "term": core.term,
            "finished": False,
            "stop": False,
            "job": core.job,
            "incarnation": core.incarnation,
        }
        orders = msgspec.structs.replace(orders, **fitting)
    core.feed(worker_inputs.Ordered(orders), job.now)
    core.feed(worker_inputs.Tick(), job.now)


def test_a_worker_takes_or_refuses_any_answer_of_a_partition() -> None:
    fuzz("w0", to_worker)


def test_a_worker_takes_or_refuses_any_orders() -> None:
    fuzz("w0", orders_to_worker)

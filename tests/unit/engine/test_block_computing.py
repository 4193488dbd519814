"""Members with the real engine: TensorFlow on the replica's memory, and the bits of a parameter server."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edlz.core_ext.memory import aligned_empty
from edlz.services.parameters.store import Store
from edlz.services.process.runtime import Stop
from edlz.services.protocol.groups import BASE
from edlz.services.protocol.messages import Decided, GroupOrders, Member, Push
from edlz.services.protocol.plan import Plan
from edlz.services.worker.block_computing import BlockComputing, BlockWatch
from edlz.services.worker.core.computation import Built
from edlz.services.worker.core.groups.inputs import (
    Advanced,
    Answered,
    Digested,
    Input,
    MemberOrdered,
    Request,
    SlotFailed,
)
from edlz.services.worker.core.groups.inputs import Built as Begun
from edlz.services.worker.core.groups.instructions import (
    Abandon,
    Advance,
    AskMember,
    Compute,
    DigestState,
    Reply,
    StageOwn,
    Tell,
    WritePart,
)
from edlz.services.worker.core.groups.milestones import Milestones
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.replica import Replica
from edlz.services.worker.core.groups.replica_phases import Phase
from edlz.services.worker.core.groups.state_transfer import state_digest
from edlz.services.worker.engine.keras_engine import KerasEngine
from edlz.services.worker.engine.model.vectors import shared_array
from edlz.services.worker.keras_thread import KerasThread
from edlz.services.worker.loss_log import LossLog
from edlz.services.worker.telemetry import Meter
from tests.simulation.model import final_bytes
from tests.unit.engine.trainer_jobs import MODEL, job, write_job

pytestmark = pytest.mark.filterwarnings("ignore:Seed .* from outer graph:UserWarning")

SLOTS = 4


Engines = tuple[Plan, list[tuple[KerasEngine, Built]]]


@contextmanager
def built_engines(folder: Path, count: int) -> Iterator[Engines]:
    write_job(folder, MODEL, {})
    config, plan = job(folder, slots=SLOTS)
    made = [KerasEngine(config, plan) for _ in range(count)]
    yield plan, [(engine, engine.build()) for engine in made]
    for engine in made:
        engine.close()


def initial_store(plan: Plan, built: Built) -> Store:
    base = Store.initial(
        plan_hash=plan.hash,
        task_count=plan.task_count,
        partition=0,
        partitions=1,
        layout=built.layout,
        optimizer=built.optimizer,
        dense=built.dense,
        state=built.state,
        counters=built.counters,
    )
    return Store(base, plan.seed)


def parameter_server(plan: Plan, engine: KerasEngine, built: Built) -> bytes:
    """All steps by one worker and one partition."""
    store = initial_store(plan, built)
    while (first := store.ledger.finished.first_missing()) < plan.task_count:
        tasks = [task for task in plan.round_tasks(first) if task not in store.ledger.finished]
        vectors = (store.dense.copy(), store.state.copy(), store.counters.copy())
        engine.load(*(aligned(vector) for vector in vectors))
        pushes = []
        for task in tasks:
            computed = engine.compute(task, store.ledger.mark(task))
            pushes.append(
                Push(
                    task=task,
                    index=computed.index,
                    is_last=computed.is_last,
                    learning_rate=engine.learning_rate(store.version),
                    gradient=computed.gradient,
                    state=computed.state,
                    counters=computed.counters,
                )
            )
        store.commit(pushes, [plan.slot(task) for task in tasks])
    return final_bytes([store.capture((0, 0))])


def aligned(vector: np.ndarray) -> np.ndarray:
    out = aligned_empty(len(vector), vector.dtype)
    out[:] = vector
    return out


class LiveMember:
    """A replica around an engine, in a group whose messages take no time."""

    def __init__(self, group: "Group", number: int, plan: Plan, engine: KerasEngine, built: Built) -> None:
        self.group, self.number, self.engine = group, number, engine
        self.core = Replica((1, number), plan, Milestones(1000.0), bucket=64)
        watch = BlockWatch(Meter(), LossLog(100))
        self.computing = BlockComputing(engine, group.thread(), self.feed, group.fail, watch)
        self.store = initial_store(plan, built)

    def feed(self, event: Input) -> None:
        if isinstance(event, SlotFailed):
            self.group.fail(AssertionError(event.error))
        for instruction in self.core.feed(event, 0.0):
            match instruction:
                case AskMember(member, key, body):
                    server = self.group.members[member.incarnation[1] - 1]
                    self.group.loop.call_soon(server.feed, Request((self, member.incarnation, key), body))
                case Reply((client, who, key), body):
                    self.group.loop.call_soon(client.feed, Answered(who, key, body))
                case Compute():
                    assert self.core.store is not None
                    self.computing.compute(instruction, self.core.store)
                case StageOwn(part):
                    self.group.loop.call_soon(self.feed, Request(OWN, part))
                case Advance(values):
                    values.run()
                    self.group.loop.call_soon(self.feed, Advanced())
                case DigestState(key, state):
                    self.group.loop.call_soon(self.feed, Digested(key, state_digest(state)))
                case Tell() | Abandon() | WritePart():
                    pass
                case _:
                    self.group.fail(AssertionError(instruction))
        if all(member.core.phase is Phase.SEALING for member in self.group.members):
            self.group.is_done.set()


class Group:
    def __init__(self, plan: Plan, engines: list[tuple[KerasEngine, Built]]) -> None:
        self.loop, self.is_done = asyncio.get_running_loop(), asyncio.Event()
        self.error: BaseException | None = None
        self.threads: list[KerasThread] = []
        self.members: list[Any] = []
        for number, (engine, built) in enumerate(engines, 1):
            self.members.append(LiveMember(self, number, plan, engine, built))

    def thread(self) -> KerasThread:
        self.threads.append(KerasThread(Stop()))
        return self.threads[-1]

    def fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self.is_done.set()

    async def train(self) -> list[Store]:
        everybody = tuple(
            Member(incarnation=(1, number), worker=str(number)) for number in range(1, len(self.members) + 1)
        )
        holders = tuple(member.incarnation for member in everybody)
        for member in self.members:
            member.feed(Begun(member.store))
            member.feed(MemberOrdered(GroupOrders(term=1, generation=(1, 1))))
        count = self.members[0].core.plan.task_count
        orders = GroupOrders(
            term=1,
            generation=(1, 1),
            members=everybody,
            source=BASE,
            holders=holders,
            decided=Decided(fence=count, task_count=count),
        )
        for member in self.members:
            member.feed(MemberOrdered(orders))
        try:
            async with asyncio.timeout(60):
                await self.is_done.wait()
        finally:
            for thread in self.threads:
                thread.close()
        if self.error is not None:
            raise self.error
        return [member.core.store for member in self.members]


def train(engines: Engines) -> list[Store]:
    async def main() -> list[Store]:
        return await Group(*engines).train()

    return asyncio.run(main())


def test_a_member_ends_with_the_bits_of_a_parameter_server_and_copies_nothing(tmp_path: Path) -> None:
    with built_engines(tmp_path / "job", 1) as (plan, made):
        [store] = train((plan, made))
        looked_at = shared_array(made[0][0]._ready.vectors.tensors[0])
        assert looked_at.ctypes.data == store.dense.ctypes.data, "TensorFlow looks at the replica where it is"
        assert len(store.ledger.finished) == plan.task_count
        assert final_bytes([store.capture((0, 0))]) == parameter_server(plan, *made[0])


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 3])
def test_several_members_end_with_the_same_bits(tmp_path: Path, members: int) -> None:
    with built_engines(tmp_path / "job", members) as (plan, made):
        expected = parameter_server(plan, *made[0])
        for store in train((plan, made)):
            assert final_bytes([store.capture((0, 0))]) == expected

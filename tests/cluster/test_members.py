"""Members of an all-reduce group over live sockets: the same bits as one parameter server, with a loss on the way."""

import asyncio
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edlz.services.errors import EdlzError, RemoteProtocolError
from edlz.services.master.core.groups import events, joins
from edlz.services.master.core.groups.rendezvous import Rendezvous
from edlz.services.protocol.messages import (
    Decided,
    GroupRefused,
    Member,
    NewestPull,
    Ping,
    Pong,
    Reduce,
    SlotHeader,
)
from edlz.services.storage.state import State
from edlz.services.transport.keys import JobKeys, make_job_keys
from edlz.services.transport.rpc import RpcClient
from edlz.services.transport.security import Security
from edlz.services.worker.core.groups import inputs
from edlz.services.worker.core.groups.inputs import Answered, Request
from edlz.services.worker.core.groups.instructions import (
    Abandon,
    Advance,
    AskMember,
    AssembleState,
    Compute,
    DigestState,
    Instruction,
    Load,
    Reply,
    StageOwn,
    Tell,
    WritePart,
)
from edlz.services.worker.core.groups.milestones import Milestones
from edlz.services.worker.core.groups.node_sums import NodeSums
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.replica import BUCKET, Replica
from edlz.services.worker.core.groups.state_transfer import copy_of, state_digest
from edlz.services.worker.core.groups.transfer import PIECE_BYTES
from edlz.services.worker.members import MemberLines
from tests.loops import LOOPS, Run, runner_on
from tests.rpc_peers import until
from tests.simulation.groups.reference import group_reference, initial_store, learning_rate
from tests.simulation.groups.schedule import GroupSchedule
from tests.simulation.model import compute_gradient, final_bytes

LIMIT_S = 30.0
SCHEDULE = GroupSchedule(seed=1, slots=4, epochs=1, lengths=(30, 25, 30, 20), workers=3)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(joins, "SETTLE_S", 0.0)  # whoever is ready joins at once
    return runner_on(request.param, monkeypatch, LIMIT_S)


class Cluster:
    """A master's core, and members around real sockets, in one event loop."""

    def __init__(self, folder: Path, keys: JobKeys | None) -> None:
        self.rendezvous, tasks = Rendezvous(SCHEDULE.plan, 1, 0.0), SCHEDULE.plan.task_count
        self.rendezvous.decided = Decided(fence=tasks, task_count=tasks)
        self.folder, self.keys = folder, keys
        self.members: dict[int, LiveMember] = {}
        self.parts: dict[Any, dict[int, State]] = {}
        self.complete: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.commits = 0

    def start(self, number: int) -> "LiveMember":
        self.members[number] = member = LiveMember(self, number)
        member.feed(inputs.Built(initial_store(SCHEDULE)))
        return member

    def kill(self, number: int) -> None:
        self.members.pop(number).close()
        self.hear(events.Lost((1, number)))

    def hear(self, event: events.Input) -> None:
        for instruction in self.rendezvous.feed(event, asyncio.get_running_loop().time()):
            if isinstance(instruction, events.Complete) and not self.complete.done():
                self.complete.set_result(instruction.name)
            elif isinstance(instruction, events.WriteManifest):
                durable = events.Durable(instruction.name, instruction.is_checkpoint)
                asyncio.get_running_loop().call_soon(self.hear, durable)

    async def beat(self) -> None:
        """Have all speak with the master, as heartbeats do."""
        while not self.complete.done():
            for member in list(self.members.values()):
                member.speak()
            await asyncio.sleep(0.01)

    def final(self) -> bytes:
        parts = self.parts[self.complete.result()]
        states = [parts[rank] for rank in sorted(parts)]
        first = states[0]
        slots = {name: np.concatenate([state.slots[name] for state in states]) for name in first.slots}
        dense, state = (
            np.concatenate([getattr(each, name) for each in states]) for name in ("dense", "state")
        )
        return final_bytes([msgspec.structs.replace(first, dense=dense, state=state, slots=slots)])


class LiveMember:
    """A member's core around its lines."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number = cluster, number
        self.core = Replica((1, number), SCHEDULE.plan, Milestones(1000.0), bucket=32)
        keys = cluster.keys
        self.lines = MemberLines(
            f"ipc://{cluster.folder}/member-{number}" if keys is None else "tcp://127.0.0.1:0",
            worker=str(number),
            job="test",
            security=Security(keys.of("worker")) if keys else Security(),
            feed=self.feed,
            fail=self.fail,
        )
        self.me = Member(incarnation=(1, number), worker=str(number), endpoint=self.lines.endpoint)
        self.is_up = True

    def fail(self, error: BaseException) -> None:
        if not self.cluster.complete.done():
            self.cluster.complete.set_exception(error)

    def feed(self, event: inputs.Input) -> None:
        if not self.is_up:
            return
        before = self.core.name
        for instruction in self.core.feed(event, asyncio.get_running_loop().time()):
            self.carry_out(instruction)
        self.cluster.commits += self.core.name != before

    def speak(self) -> None:
        now = asyncio.get_running_loop().time()
        self.cluster.hear(events.Heard(self.me, self.core.status(now)))
        self.feed(inputs.MemberOrdered(self.cluster.rendezvous.orders(self.me.incarnation)))
        self.feed(inputs.Tick())

    def carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case AskMember():
                self.lines.ask(instruction)
            case StageOwn(part):
                self.soon(inputs.Request(OWN, part))
            case Reply():
                self.lines.reply(instruction)
            case Abandon():
                self.lines.abandon()
            case Compute():
                asyncio.get_running_loop().call_soon(self.compute, instruction)
            case WritePart(_, part):
                state = copy_of(part)
                parts = self.cluster.parts.setdefault(state.name, {})
                parts[state.partition] = state
                written = inputs.PartWritten(
                    instruction.generation, state.name, state.partition, state.partitions
                )
                self.soon(written)
            case Advance(values):
                values.run()
                self.soon(inputs.Advanced())
            case DigestState(key, state):
                self.soon(inputs.Digested(key, state_digest(state)))
            case AssembleState(attempt, incoming):
                self.soon(inputs.Assembled(attempt, incoming.whole()))
            case Tell() | Load():
                pass

    def soon(self, event: inputs.Input) -> None:
        asyncio.get_running_loop().call_soon(self.feed, event)

    def compute(self, order: Compute) -> None:
        store, sums = self.core.store, NodeSums(order.block, order.count)
        assert store is not None
        for slot in order.slots:
            values, length = store.values(), SCHEDULE.lengths[slot.task]
            header = SlotHeader(
                slot=slot.slot,
                task=slot.task,
                index=slot.index,
                is_last=slot.index + 1 >= length,
                is_empty=False,
            )
            about = (values.dense, values.state, values.counters, slot.task, slot.index)
            gradient, state, counters = compute_gradient(*about)
            sums.add(slot.slot, gradient, state)
            self.feed(inputs.SlotComputed(order.attempt, header, counters))
        self.feed(inputs.BlockComputed(order.attempt, learning_rate(order.version), sums.take()))

    def close(self) -> None:
        self.is_up = False
        self.lines.close()


async def train(keys: JobKeys | None, *, is_lossy: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), keys)
        for number in (1, 2, 3):
            cluster.start(number)
        beat = asyncio.create_task(cluster.beat())
        try:
            await until(lambda: len(cluster.members[3].core.status(0.0).members) == 3)
            if is_lossy:
                cluster.kill(2)
                cluster.start(4)
            await asyncio.wait_for(asyncio.shield(cluster.complete), LIMIT_S)
            assert cluster.final() == group_reference(SCHEDULE)
            assert {state.partitions for state in cluster.parts[cluster.complete.result()].values()} == {3}
        finally:
            beat.cancel()
            for member in cluster.members.values():
                member.close()


@pytest.mark.parametrize("has_keys", [False, True], ids=["without keys", "with keys"])
def test_members_end_with_the_bits_of_a_parameter_server(run: Run, *, has_keys: bool) -> None:
    run(train(make_job_keys() if has_keys else None, is_lossy=False))


def test_a_member_is_lost_and_another_one_takes_the_state_over(run: Run) -> None:
    run(train(None, is_lossy=True))


@pytest.mark.parametrize("size_bytes", [4 * BUCKET, PIECE_BYTES], ids=["bucket", "piece of a state"])
def test_a_vector_is_one_frame_and_lies_where_it_was_received(run: Run, size_bytes: int) -> None:
    async def main(folder: str) -> None:
        received: asyncio.Future[Reduce] = asyncio.get_running_loop().create_future()
        lines = pair_of_lines(folder, lambda event: received.set_result(event.body))  # type: ignore[arg-type]
        vector = np.arange(size_bytes // 4, dtype=np.float32)
        try:
            lines[0].ask(AskMember(member_at(lines[1]), "key", part_of(vector, vector)))
            for came in (await received).dense:
                assert np.array_equal(came, vector)
                assert isinstance(came.base, memoryview)  # one that was joined would be an array's
        finally:
            for each in lines:
                each.close()

    with tempfile.TemporaryDirectory() as folder:
        run(main(folder))


def test_parts_of_later_steps_come_into_the_memory_of_earlier_ones(run: Run) -> None:
    """More of them than one of malloc's heaps has; making pages anew would take longer than adding up."""
    count, steps = 80, 6
    faults: list[int] = []

    async def main(folder: str) -> None:
        parts: list[Request] = []
        answered: asyncio.Queue[object] = asyncio.Queue()

        def feed(event: Request | Answered) -> None:
            if isinstance(event, Answered):
                answered.put_nowait(event.key)
                return
            parts.append(event)
            if len(parts) == count:
                for part in parts:
                    lines[1].reply(Reply(part.to, GroupRefused(reason="not ready", generation=(1, 1))))
                parts.clear()

        lines = pair_of_lines(folder, feed)
        vector = np.ones(BUCKET, np.float32)
        try:
            for _ in range(steps):
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                for number in range(count):
                    lines[0].ask(AskMember(member_at(lines[1]), number, part_of(vector)))
                for _ in range(count):
                    await answered.get()
                faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        finally:
            for each in lines:
                each.close()

    with tempfile.TemporaryDirectory() as folder:
        run(main(folder))
    pages = count * 4 * BUCKET // resource.getpagesize()
    assert min(faults[2:]) < pages / 10, faults


def pair_of_lines(folder: str, feed: Callable[[Request | Answered], None]) -> list[MemberLines]:
    return [
        MemberLines(
            f"ipc://{folder}/{number}",
            worker=str(number),
            job="test",
            security=Security(),
            feed=feed,
            fail=_raise,
        )
        for number in range(2)
    ]


def member_at(lines: MemberLines) -> Member:
    return Member(incarnation=(1, 1), worker="1", endpoint=lines.endpoint)


def part_of(*vectors: np.ndarray) -> Reduce:
    places = tuple(range(len(vectors)))
    return Reduce(generation=(1, 1), version=0, rank=0, bucket=0, headers=(), places=places, dense=vectors)


def _raise(error: BaseException) -> None:
    raise error


def test_only_workers_and_the_master_get_in(run: Run) -> None:
    keys = make_job_keys()

    async def main() -> None:
        lines = MemberLines(
            "tcp://127.0.0.1:0",
            worker="0",
            job="test",
            security=Security(keys.of("worker")),
            feed=lambda event: None,
            fail=lambda error: None,
        )
        clients = {
            role: RpcClient(
                lines.endpoint,
                role=role,
                identity="0",
                security=Security(keys.of(role)),
                server="worker",
                linger_s=0,
            )
            for role in ("worker", "master", "ps", "client")
        }
        try:
            for role in ("worker", "master"):
                assert await clients[role].request(Ping(), 5.0) == Pong(role="worker-0", job="test")
            for role in ("ps", "client"):
                with pytest.raises(EdlzError):
                    await clients[role].request(Ping(), 0.5)
            with pytest.raises(RemoteProtocolError, match="a member takes no NewestPull"):
                await clients["master"].request(NewestPull(), 5.0)
        finally:
            for client in clients.values():
                client.close()
            lines.close()

    run(main())

"""`python -m benchmarks.exchange_member RANK COUNT FOLDER`: one of the processes of `allreduce.py`, a member as it is.

Core and lines are a worker's; the gradient is always the same, and the optimizer's step is left out, which peers do not
take either.  Each line of the input, `WHAT FLOATS STEPS`, is answered by seconds of the clock and of the processor.  `WHAT` is
`exchange`, or `copy`: plain copies of what a member sends and receives.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from edlz.core_ext.dense import copy
from edlz.core_ext.memory import aligned_empty
from edlz.services.parameters.mean_step import MeanStep, NextValues
from edlz.services.parameters.store import Store
from edlz.services.process.runtime import Stop, run_service
from edlz.services.protocol.layout import Layout, Variable, VectorLayout
from edlz.services.protocol.messages import Decided, GroupOrders, Member, OptimizerSpec, Reduce, SlotHeader
from edlz.services.protocol.plan import Plan, Shard
from edlz.services.transport.security import Security
from edlz.services.worker.core.groups.inputs import (
    Advanced,
    BlockComputed,
    Built,
    Digested,
    Input,
    MemberOrdered,
    Request,
    SlotComputed,
)
from edlz.services.worker.core.groups.instructions import (
    Abandon,
    Advance,
    AskMember,
    Compute,
    DigestState,
    Reply,
    StageOwn,
)
from edlz.services.worker.core.groups.milestones import Milestones
from edlz.services.worker.core.groups.node_sums import NodeSums
from edlz.services.worker.core.groups.reduction import OWN
from edlz.services.worker.core.groups.replica import Replica
from edlz.services.worker.members import MemberLines

__all__: list[str] = []

MINIBATCHES = 1 << 30  # of a task: it never ends


class _StoreWithoutOptimizer(Store):
    """The state of a job, whose parameters stay."""

    def prepare(self, step: MeanStep) -> NextValues:
        return super().prepare(MeanStep(minibatches=step.minibatches, learning_rate=step.learning_rate))


class _Exchanging:
    """A member of a group whose model has so many floats."""

    def __init__(self, rank: int, count: int, folder: str, floats: int) -> None:
        plan = _plan(count)
        self._loop = asyncio.get_running_loop()
        self._core = Replica((1, rank + 1), plan, Milestones(1e9))
        self._gradient = aligned_empty(floats, np.float32)
        self._gradient.fill(0.001)
        self._order: Compute | None = None
        self._own: deque[Reduce] = deque()
        self._left = 0
        self._done = asyncio.Event()
        endpoints = [f"ipc://{folder}/{floats}-{each}" for each in range(count)]
        self._lines = MemberLines(
            endpoints[rank],
            worker=str(rank),
            job="exchange",
            security=Security(),
            feed=self.feed,
            fail=self._fail,
        )
        members = tuple(
            Member(incarnation=(1, each + 1), worker=str(each), endpoint=endpoint)
            for each, endpoint in enumerate(endpoints)
        )
        self.feed(Built(_store(plan, floats)))
        self.feed(MemberOrdered(GroupOrders(term=1, generation=(1, 1))))
        holders = tuple(member.incarnation for member in members)
        decided = Decided(fence=plan.task_count, task_count=plan.task_count)
        formed = GroupOrders(term=1, generation=(1, 1), members=members, holders=holders, decided=decided)
        self.feed(MemberOrdered(formed))

    def feed(self, event: Input) -> None:
        for instruction in self._core.feed(event, self._loop.time()):
            match instruction:
                case AskMember():
                    self._lines.ask(instruction)
                case StageOwn(part):
                    self._stage(part)
                case Reply():
                    self._lines.reply(instruction)
                case Abandon():
                    self._lines.abandon()
                case Advance(values):
                    values.run()
                    self._loop.call_soon(self.feed, Advanced())
                case DigestState(
                    key
                ):  # members are equal here; what it takes to compare them is not the exchange's
                    self._loop.call_soon(self.feed, Digested(key, "equal"))
                case Compute():
                    self._order = instruction
                    if self._left:
                        self._left -= 1
                        if not self._left:
                            self._done.set()
                    if self._left:
                        self._loop.call_soon(self._compute)

    def _stage(self, part: Reduce) -> None:
        """Take in a part of this member's own, as `Membership` does: one in each turn of the loop."""
        if not self._own:
            self._loop.call_soon(self._stage_next)
        self._own.append(part)

    def _stage_next(self) -> None:
        part = self._own.popleft()
        if self._own:
            self._loop.call_soon(self._stage_next)
        self.feed(Request(OWN, part))

    async def run(self, steps: int) -> None:
        """Take so many steps."""
        self._left = steps
        self._done.clear()
        self._compute()
        await self._done.wait()

    def _compute(self) -> None:
        order = self._order
        assert order is not None
        sums = NodeSums(order.block, order.count)
        for slot in order.slots:
            header = SlotHeader(
                slot=slot.slot, task=slot.task, index=slot.index, is_last=False, is_empty=False, records=1
            )
            sums.add(slot.slot, self._gradient, None)
            self.feed(SlotComputed(order.attempt, header))
        self.feed(BlockComputed(order.attempt, 0.1, sums.take()))

    def _fail(self, error: BaseException) -> None:
        raise SystemExit(f"a member of the group failed: {error}")


def _plan(count: int) -> Plan:
    return Plan(
        mode="sync",
        seed=1,
        shards=(Shard(name="data", first=0, count=count),),
        records_per_task=1,
        minibatch_size=1,
        epochs=1,
        slots=count,
    )


def _store(plan: Plan, floats: int) -> Store:
    layout = Layout(
        dense=VectorLayout(variables=(Variable(path="w", shape=(floats,)),)),
        state=VectorLayout(variables=()),
        counters=VectorLayout(variables=()),
    )
    state = Store.initial(
        plan_hash=plan.hash,
        task_count=plan.task_count,
        partition=0,
        partitions=1,
        layout=layout,
        optimizer=OptimizerSpec(name="SGD", settings={}),
        dense=np.zeros(layout.dense.size, np.float32),
        state=np.zeros(0, np.float32),
        counters=np.zeros(0, np.int64),
    )
    return _StoreWithoutOptimizer(state, plan.seed)


def _copies(count: int, floats: int) -> Callable[[int], None]:
    """Return what copies as much as a member sends and receives in so many steps."""
    volume = 2 * floats * (count - 1) // count
    source, target = np.ones(volume, np.float32), aligned_empty(volume, np.float32)

    def run(steps: int) -> None:
        for _ in range(2 * steps):
            copy(target, source)

    return run


async def _main(_stop: Stop) -> int:
    rank, count, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    groups: dict[int, _Exchanging] = {}
    copying: dict[int, Callable[[int], None]] = {}
    lines: deque[str] = deque()
    has_line = asyncio.Event()

    def on_input() -> None:
        lines.append(sys.stdin.readline())
        has_line.set()

    asyncio.get_running_loop().add_reader(sys.stdin, on_input)
    while True:
        await has_line.wait()
        has_line.clear()
        what, *numbers = lines.popleft().split() or ["end"]
        if what == "end":
            break
        floats, steps = map(int, numbers)
        if what == "exchange" and floats not in groups:
            groups[floats] = _Exchanging(rank, count, folder, floats)
        if what == "copy" and floats not in copying:
            copying[floats] = _copies(count, floats)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        if what == "exchange":
            await groups[floats].run(steps)
        else:
            copying[floats](steps)
        print(time.perf_counter() - began_s, time.process_time() - cpu_s, flush=True)
    asyncio.get_running_loop().remove_reader(sys.stdin)
    return 0


if __name__ == "__main__":
    sys.exit(run_service(_main))

"""A partition while a checkpoint is cut: what it says, what it holds, what it writes (asynchronous mode)."""

from typing import Any

import numpy as np

from edlz.services.parameters.store import initial_digest
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import (
    CheckpointOrder,
    Exchange,
    Granted,
    Initialise,
    PartitionOrders,
    PartitionStatus,
    Push,
)
from edlz.services.ps.core.inputs import Answered, Request, Tick, Written
from edlz.services.ps.core.instructions import Reply, Report, Write
from edlz.services.ps.core.partition import Partition
from tests import builders
from tests.simulation.disk import Disk
from tests.simulation.model import LAYOUT, OPTIMIZER, initial_vectors

LIFE = (1, 1)


class Bench:
    """A partition that serves, the only one of its job."""

    def __init__(self) -> None:
        plan = builders.plan(10, mode="async", records_per_task=10)
        disk, parts = Disk(), initial_vectors()
        self.core = Partition(0, 1, "ipc://ps-0", disk)
        self.number, self.now = 0, 0.0
        status = self.statuses(self.core.feed(Tick(), 0.0))[-1]
        status = self.statuses(self.core.feed(Answered(status, Granted(term=1, incarnation=None)), 0.0))[-1]
        job = builders.job(plan, name="job", run="1")
        self.core.feed(Answered(status, Granted(term=1, incarnation=LIFE, job=job)), 0.0)
        initialise = Initialise(
            run="1",
            plan_hash=plan.hash,
            digest=initial_digest(plan.hash, LAYOUT, OPTIMIZER, (), *parts),
            layout=LAYOUT,
            optimizer=OPTIMIZER,
            tables=(),
            dense=parts[0],
            state=parts[1],
            counters=parts[2],
        )
        [base] = self.core.feed(Request("worker", initialise), 0.0)
        assert isinstance(base, Write)
        disk.write(base.state, LIFE)
        self.status = self.statuses(self.core.feed(Written(base), 0.0))[-1]
        self.obey()

    def statuses(self, instructions: list[Any]) -> list[PartitionStatus]:
        return [instruction.body for instruction in instructions if isinstance(instruction, Report)]

    def obey(self, phase: Any = None, asked: PartitionStatus | None = None, **fields: Any) -> list[Any]:
        """Let the master answer the newest status, or an older one."""
        self.number += 1
        order = CheckpointOrder(number=1, phase=phase, **fields) if phase else None
        orders = PartitionOrders(term=1, number=self.number, incarnation=LIFE, stop=False, checkpoint=order)
        out = self.core.feed(Answered(asked or self.status, orders), 0.0)
        self.core.check_invariants()
        self.status = (self.statuses(out) or [self.status])[-1]
        return out

    def push(self, index: int) -> list[Any]:
        push = Push(
            task=0,
            index=index,
            is_last=False,
            learning_rate=0.1,
            gradient=np.ones_like(initial_vectors()[0]),
            state=None,
            counters=None,
        )
        body = Exchange(era=(0, 0), incarnation=LIFE, version=index, push=push, run="1")
        out = self.core.feed(Request(f"worker-{index}", body), 0.0)
        self.core.check_invariants()
        return out

    def tick(self) -> PartitionStatus:
        self.now += 10.0
        self.status = self.statuses(self.core.feed(Tick(), self.now))[-1]
        return self.status


def test_a_frozen_ledger_is_told_until_the_master_has_it() -> None:
    bench = Bench()
    first = bench.status
    bench.push(0)
    bench.obey("near")
    bench.obey("freeze")
    frozen = bench.status
    assert (frozen.frozen, frozen.ledger) == (1, LedgerRecord(marks=((0, 1),), minibatches=1))
    bench.obey("freeze", asked=first)  # with the ledger of before: an answer that was late
    assert bench.tick().ledger == frozen.ledger
    bench.obey("freeze")
    assert bench.tick().ledger is None


def test_the_part_is_captured_before_any_push_that_was_held() -> None:
    bench = Bench()
    bench.push(0)
    bench.obey("near")
    bench.obey("freeze")
    assert bench.push(1) == [], "it is held"
    marks = LedgerRecord(marks=((0, 1),), minibatches=1)
    write, *replies = bench.obey("level", marks=marks, version=7)
    assert isinstance(write, Write)
    assert (write.kind, write.number, write.version, write.state.ledger) == ("checkpoint", 1, 7, marks)
    assert [type(reply) for reply in replies] == [Reply]
    assert bench.core.store is not None
    assert bench.core.store.ledger.marks == {0: 2}
    assert bench.obey("level", marks=marks, version=7) == [], "it has been cut"


def test_a_push_that_comes_to_the_marks_cuts() -> None:
    bench = Bench()
    bench.obey("near")
    bench.obey("freeze")
    marks = LedgerRecord(marks=((0, 2),), minibatches=2)
    assert bench.obey("level", marks=marks, version=2) == []
    assert [type(i) for i in bench.push(0)] == [Reply]
    assert [type(i) for i in bench.push(1)] == [Reply, Write]

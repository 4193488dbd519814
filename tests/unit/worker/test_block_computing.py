"""What a member computes of a block of slots, and what its replica is told of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edlz.services.process.runtime import Stop
from edlz.services.protocol.messages import EvaluationLease, Exchanged, MetricState
from edlz.services.protocol.plan import TaskRange
from edlz.services.worker.block_computing import _told
from edlz.services.worker.computing import Computing
from edlz.services.worker.core.computation import Computed
from edlz.services.worker.core.groups.inputs import BlockComputed, SlotBegins, SlotComputed
from edlz.services.worker.core.groups.instructions import Compute, Proceed, Slot
from edlz.services.worker.core.inputs import Evaluated, Input, ModelBuilt
from edlz.services.worker.core.instructions import Build, Evaluate
from tests import builders
from tests.in_process import NumpyEngine
from tests.simulation.model import compute_gradient, trained_vectors


def computed(index: int, gradient: npt.NDArray[np.float32] | None) -> Computed:
    """Return the last minibatch of task 2."""
    return Computed(
        task=2,
        index=index,
        is_last=True,
        gradient=gradient,
        state=None,
        counters=None,
        loss=None if gradient is None else 0.5,
        records=0 if gradient is None else 5,
        read_s=0.0,
        compute_s=0.0,
    )


@pytest.mark.parametrize(
    ("end_at", "is_last"),
    [
        (None, True),
        (9, True),  # the records end before the task was to
        (4, False),  # an empty minibatch ends it
    ],
)
def test_a_task_ends_with_its_records_or_where_the_master_has_ended_it(
    end_at: int | None, is_last: bool
) -> None:
    last = computed(3, np.zeros(4, np.float32))
    told = _told(7, Slot(slot=1, task=2, index=3, end_at=end_at), last)
    assert (told.header.is_last, told.header.is_empty) == (is_last, False)


def test_what_is_empty_ends_its_task() -> None:
    told = _told(7, Slot(slot=1, task=2, index=4, end_at=4), computed(4, None))
    assert (told.header.is_last, told.header.is_empty) == (True, True)


class MeasuringEngine(NumpyEngine):
    """Its metric is the first of the parameters."""

    def evaluate(
        self, task: int, records: TaskRange, rows: Sequence[np.ndarray] = ()
    ) -> tuple[int, MetricState]:
        return 1, {"first": [self._vectors[0][:1].astype(np.float64)]}


def test_what_is_evaluated_between_the_slots_of_a_block_changes_none_of_both() -> None:
    """Callbacks that only look on have values evaluated while members train."""
    dense, state, counters = trained_vectors()
    values = Exchanged(
        incarnation=(1, 1),
        mark=0,
        finished=False,
        version=3,
        dense=dense,
        state=state,
        counters=counters,
    )

    async def main() -> None:
        told: asyncio.Queue[Input | SlotComputed | BlockComputed | BaseException] = asyncio.Queue()
        config = builders.settings(distribution_strategy="AllreduceStrategy")
        job = builders.job(builders.plan(8, evaluated=1, slots=2), config=config.to_record())
        computing = Computing(config, MeasuringEngine, Stop(), told.put_nowait, told.put_nowait)
        try:
            computing.build(Build(job))
            built = await told.get()
            assert isinstance(built, ModelBuilt)
            assert built.base is not None
            own = built.base.values()
            lease = EvaluationLease(round=0, task=0, records=job.plan.evaluation_ranges[0])

            def tell(of_block: SlotComputed | BlockComputed) -> None:
                told.put_nowait(of_block)
                computing.tasks.evaluate(Evaluate(lease, (values,)))

            block = computing.block_computing(tell)  # type: ignore[arg-type]
            block.compute(Compute(1, 0, (Slot(0, 0, 0), Slot(1, 1, 0)), range(2), 2), built.base)
            wanted = [compute_gradient(own.dense, own.state, own.counters, slot, 0)[0] for slot in range(2)]
            for kind in (SlotComputed, SlotComputed, BlockComputed):
                computed = await told.get()
                assert isinstance(computed, kind)
                if isinstance(computed, BlockComputed):
                    assert computed.sums.places == (0,)
                    np.testing.assert_array_equal(computed.sums.dense[0], wanted[0] + wanted[1])
                evaluated = await told.get()
                assert isinstance(evaluated, Evaluated)
                assert evaluated.done.states["first"][0] == dense[0]
        finally:
            await computing.close()

    asyncio.run(asyncio.wait_for(main(), 10))


class HoldingEngine(NumpyEngine):
    """Says which tasks it had in hand whenever it computed."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.held: set[int] = set()
        self.seen: list[tuple[int, set[int]]] = []
        self.dropped: list[int] = []

    def begin(self, task: int, *_: object, **__: object) -> None:
        self.held.add(task)

    def compute(self, task: int, index: int, rows: Sequence[np.ndarray] = ()) -> Computed:
        self.seen.append((task, set(self.held)))
        return super().compute(task, index, rows)

    def drop(self, task: int) -> None:
        self.held.discard(task)
        self.dropped.append(task)


def test_a_slow_block_reads_a_task_when_its_slot_may_be_computed_and_no_other() -> None:
    """Else another one might end the worker, that nobody has heard of."""
    engines: list[HoldingEngine] = []

    def make(*about: Any) -> HoldingEngine:
        engines.append(HoldingEngine(*about))
        return engines[-1]

    async def main() -> None:
        told: asyncio.Queue[Any] = asyncio.Queue()
        config = builders.settings(distribution_strategy="AllreduceStrategy")
        job = builders.job(builders.plan(8, slots=2), config=config.to_record())
        computing = Computing(config, make, Stop(), told.put_nowait, told.put_nowait)
        try:
            computing.build(Build(job))
            built = await told.get()
            slots = Slot(0, 0, 0), Slot(1, 1, 0)
            block = computing.block_computing(told.put_nowait)
            block.compute(Compute(1, 0, slots, range(2), 2), built.base)
            for kind in (SlotComputed, SlotComputed, BlockComputed):
                assert isinstance(await told.get(), kind)
            block.compute(Compute(2, 0, slots, range(2), 2, is_slow=True), built.base)
            for slot in slots:
                assert await told.get() == SlotBegins(2, slot.task, 0)
                block.proceed(Proceed(1, slot.task))
                block.proceed(Proceed(2, 1 - slot.task))
                assert block._waits is not None, "for a word to this slot, of this block"
                block.proceed(Proceed(2, slot.task))
                block.proceed(Proceed(2, slot.task))
                assert isinstance(await told.get(), SlotComputed)
            assert isinstance(await told.get(), BlockComputed)
            block.compute(Compute(3, 0, (Slot(1, 1, 0, 1),), range(1, 2), 2), built.base)
            assert isinstance(await told.get(), SlotComputed)
            assert isinstance(await told.get(), BlockComputed)
        finally:
            await computing.close()

    asyncio.run(asyncio.wait_for(main(), 10))
    assert engines[0].seen == [(0, {0, 1}), (1, {0, 1}), (0, {0}), (1, {1}), (1, {1})]
    assert engines[0].dropped[-1] == 1, "it has an end now"

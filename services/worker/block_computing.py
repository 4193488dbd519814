"""What a member of an all-reduce group computes: the slots of its block, on its replica as it lies in memory."""

import logging
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from edlz.core_ext.memory import aligned_empty
from edlz.services.parameters.store import Store
from edlz.services.process.shell import Fail
from edlz.services.protocol.messages import SlotHeader
from edlz.services.worker.core.computation import BatchCalls, Computed, Engine
from edlz.services.worker.core.groups.inputs import BlockComputed, SlotBegins, SlotComputed, SlotFailed
from edlz.services.worker.core.groups.instructions import Compute, Proceed, Slot
from edlz.services.worker.core.groups.node_sums import NodeSums
from edlz.services.worker.engine.user_code.user_code import TaskError
from edlz.services.worker.keras_thread import KerasThread
from edlz.services.worker.loss_log import LossLog
from edlz.services.worker.telemetry import Meter

__all__ = ["BlockComputing", "BlockWatch"]

Vector = npt.NDArray[np.float32]
Counters = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)


class BlockWatch:
    """Shows what is computed of a block, in the figures and in the log; called on the loop.

    Parameters
    ----------
    meter : Meter
    losses : LossLog
    """

    def __init__(self, meter: Meter, losses: LossLog) -> None:
        self._meter, self._losses = meter, losses

    def on_begin(self, task: int) -> None:
        """A minibatch of this task is computed."""
        self._meter.begin("training", task)

    def on_computed(self, version: int, computed: Computed | None) -> None:
        """It is, on the parameters of this version, or has raised (None)."""
        self._meter.end(computed)
        if computed is not None and computed.loss is not None:
            self._losses.note(version, computed.loss, computed.task, computed.index)

    def on_rate(self, learning_rate: float) -> None:
        """The step that is computed has this learning rate."""
        self._meter.learning_rate = learning_rate


class BlockComputing:
    """Drives an engine as a `Replica` asks for it.

    TensorFlow looks at the dense vector where it is.  That is safe: a replica takes no step, and takes no state over, by
    which a vector would change under a block that counts, and what is computed of one that does not count is not told.

    Parameters
    ----------
    engine : Engine
        It is built.
    thread : KerasThread
        The one that it runs in.
    tell : callable
        Given what has come of a slot, or of a block, on the loop.
    fail : callable
        Told of an error that is not of one task's.
    watch : BlockWatch
        Shown what is computed.
    calls : BatchCalls, optional
        Callbacks that are called at each minibatch.
    """

    def __init__(
        self,
        engine: Engine,
        thread: KerasThread,
        tell: Callable[[SlotBegins | SlotComputed | SlotFailed | BlockComputed], None],
        fail: Fail,
        watch: BlockWatch,
        calls: BatchCalls | None = None,
    ) -> None:
        self._engine, self._thread, self._tell, self._fail = engine, thread, tell, fail
        self._watch, self._calls = watch, calls
        self._in_hand: dict[int, int | None] = {}  # tasks that the engine reads ahead, and where they end
        self._vectors: tuple[Vector, Vector, Counters] | None = None  # of the block in work
        self._sums: NodeSums | None = None  # of what is computed of it
        self._attempt = 0  # the newest block
        self._waits: tuple[Compute, int] | None = None  # for a word, at this slot

    def compute(self, order: Compute, store: Store) -> None:
        """Compute a block on this state."""
        logger.debug("block of v%d: slots %s", order.version, [slot.slot for slot in order.slots])
        self._attempt = order.attempt
        self._thread.submit(
            "task", lambda: self._begin(order, store), lambda _: self._go_on(order, 0), self._fail
        )

    def abandon(self) -> None:
        """Compute nothing more of the block in work."""
        self._attempt = 0

    def _begin(self, order: Compute, store: Store) -> None:
        """In the engine's thread: have the block's state at hand, and its tasks and no others."""
        state, counters = (
            aligned_empty(len(store.state), np.float32),
            aligned_empty(len(store.counters), np.int64),
        )
        state[:], counters[:] = store.state, store.counters
        self._vectors = store.dense, state, counters
        self._sums = NodeSums(order.block, order.count)
        if order.is_slow:  # what comes first may stay in hand
            self._keep({slot.task: slot.end_at for slot in order.slots[:1]})
        else:
            self._take(order.slots)

    def _keep(self, tasks: dict[int, int | None]) -> None:
        """In the engine's thread: have nothing in hand but what is among these tasks, and ends where it did."""
        for task, _ in self._in_hand.items() - tasks.items():
            self._engine.drop(task)
        self._in_hand = dict(self._in_hand.items() & tasks.items())

    def _take(self, slots: Sequence[Slot]) -> None:
        """In the engine's thread: have the tasks of these slots in hand, and no others."""
        tasks = {slot.task: slot.end_at for slot in slots}
        self._keep(tasks)
        for slot in slots:
            self._engine.begin(slot.task, slot.slot, slot.index, slot.end_at)
        self._in_hand = tasks

    def proceed(self, order: Proceed) -> None:
        """Compute the slot that comes next, if it is that of this task, and waits."""
        if self._waits is None:
            return
        waits, place = self._waits
        if (waits.attempt, waits.slots[place].task) == (order.attempt, order.task):
            self._waits = None
            self._compute_slot(waits, place)

    def _go_on(self, order: Compute, place: int) -> None:
        """Compute the next slot of the block, or say that it is done."""
        if order.attempt != self._attempt:
            return
        if place == len(order.slots):
            self._thread.submit("step", lambda: self._end(order), self._on_end, self._fail)
        elif order.is_slow:
            self._waits = order, place
            slot = order.slots[place]
            self._tell(SlotBegins(order.attempt, slot.task, slot.index))
        else:
            self._compute_slot(order, place)

    def _compute_slot(self, order: Compute, place: int) -> None:
        slot = order.slots[place]
        self._watch.on_begin(slot.task)

        def then(computed: Computed) -> None:
            self._watch.on_computed(order.version, computed)
            if order.attempt == self._attempt:
                self._tell(_told(order.attempt, slot, computed))
            self._go_on(order, place + 1)

        step = self._step_alone if order.is_slow else self._step
        self._thread.submit(
            "step",
            lambda: step(order.version, slot),
            then,
            lambda error: self._on_error(order.attempt, error),
        )

    def _end(self, order: Compute) -> BlockComputed:
        """In the engine's thread: what the block adds up to, and the rate of its step."""
        rate, sums = order.learning_rate, self._sums
        assert sums is not None, "no block is begun"
        rate = self._engine.learning_rate(order.version) if rate is None else rate
        return BlockComputed(order.attempt, rate, sums.take())

    def _on_end(self, computed: BlockComputed) -> None:
        self._watch.on_rate(computed.learning_rate)
        self._tell(computed)

    def _step_alone(self, version: int, slot: Slot) -> Computed:
        """In the engine's thread: the same, and no other task is read ahead."""
        self._take((slot,))
        return self._step(version, slot)

    def _step(self, version: int, slot: Slot) -> Computed:
        """In the engine's thread: compute a minibatch; something may have been evaluated since the one before."""
        assert self._vectors is not None, "no block is begun"
        assert self._sums is not None, "no block is begun"
        self._engine.load(*self._vectors)
        if self._calls is not None:
            self._calls.on_batch_begin(version)
        computed = self._engine.compute(slot.task, slot.index)
        if self._calls is not None and computed.loss is not None:
            self._calls.on_batch_end(version, computed.loss)
        if computed.gradient is not None:
            self._sums.add(slot.slot, computed.gradient, computed.state)
        return computed

    def _on_error(self, attempt: int, error: BaseException) -> None:
        self._watch.on_computed(0, None)
        if not isinstance(error, TaskError):
            self._fail(error)
        elif attempt == self._attempt:
            failed = error.record("training", attempt=attempt)
            self._tell(SlotFailed(attempt, error.task, error.index, error.error, failed))


def _told(attempt: int, slot: Slot, computed: Computed) -> SlotComputed:
    """Return what the replica is told of a slot; a task with a journalled end ends there by an empty one.

    Its records may end before that: then it ends with them, as under a lease.
    """
    is_empty = computed.gradient is None
    is_before_end = slot.end_at is None or slot.index + 1 < slot.end_at
    header = SlotHeader(
        slot=slot.slot,
        task=slot.task,
        index=slot.index,
        is_last=computed.is_last and (is_empty or is_before_end),
        is_empty=is_empty,
        records=computed.records,
        loss=computed.loss,
    )
    return SlotComputed(attempt, header, computed.counters)

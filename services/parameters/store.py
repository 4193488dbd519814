"""The tensors of one partition, the ledger of what is in them, and how a step changes both at once.

Owns: the slices of the dense, state and counter vectors, the optimizer slots, the embedding tables, the
version before (synchronous mode).  Does not own: when a step is due (the partition's), files (the
snapshots').
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.core_ext.dense import copy, tree_mean
from edlz.core_ext.memory import ALIGNMENT_BYTES, aligned_empty
from edlz.core_ext.optimizers import make_optimizer
from edlz.services import strict_json
from edlz.services.errors import RemoteProtocolError
from edlz.services.parameters.applied_counts import AppliedCounts, no_counts
from edlz.services.parameters.dense_optimizer import DenseOptimizer
from edlz.services.parameters.lent_buffers import LentBuffers
from edlz.services.parameters.mean_step import MeanStep, NextValues
from edlz.services.parameters.tables import Tables, empty_rows
from edlz.services.protocol.layout import Layout, slice_bounds
from edlz.services.protocol.ledger import Ledger, LedgerRecord
from edlz.services.protocol.messages import (
    NO_IDENTITY,
    Identity,
    OptimizerSpec,
    Push,
    ReadTables,
    ReadVector,
    TableDigests,
    TableSpec,
    VectorPart,
)
from edlz.services.storage.state import State

__all__ = ["Store", "Values", "initial_digest", "read"]

Vector = npt.NDArray[np.float32]
Counters = npt.NDArray[np.int64]

_NOTHING = np.empty(0, np.float32)


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """This partition's slices of the three vectors at one version."""

    version: int
    dense: Vector
    state: Vector
    counters: Counters


class _Steps(NamedTuple):
    """The scalars of one step, as the kernels take them."""

    dense: Sequence[bytes]  # for each piece of the vector with one weight decay
    rows: Sequence[bytes]  # for each table


_NO_STEPS = _Steps((), ())


def initial_digest(
    plan_hash: str,
    layout: Layout,
    optimizer: OptimizerSpec,
    tables: Sequence[TableSpec],
    dense: Vector,
    state: Vector,
    counters: Counters,
) -> str:
    """Return what two workers compare to see that they would begin from the same partition state."""
    digest = hashlib.sha256(plan_hash.encode() + layout.hash.encode())
    digest.update(strict_json.encode((optimizer, tuple(tables))))
    for vector in (dense, state, counters):
        digest.update(np.ascontiguousarray(vector).data)
    return digest.hexdigest()


def _check_slices(
    layout: Layout, place: tuple[int, int], dense: Vector, state: Vector, counters: Counters
) -> None:
    """Raise ValueError if a slice has not the length that the layout gives a partition."""
    for name, vector, size in (
        ("dense", dense, layout.dense.size),
        ("state", state, layout.state.size),
        ("counters", counters, layout.counters.size),
    ):
        lo, hi = slice_bounds(size, *place)
        if vector.shape != (hi - lo,):
            raise ValueError(f"{name} slice has shape {vector.shape}, the layout gives {(hi - lo,)}")


class Store:
    """The state of one partition, changed by whole minibatches only.

    Parameters
    ----------
    state : State
        Where to begin; its tables' rows are read once.
    seed : int
        The job's: initial values of rows follow from it.
    adopts : bool
        Whether the state's arrays become this store's own, which changes them; else they are copied.  Nobody else may have
        them then; of the values those are copied that do not begin on a cache line.
    """

    def __init__(self, state: State, seed: int, *, adopts: bool = False) -> None:
        nothing = {
            "dense": _NOTHING,
            "state": _NOTHING,
            "counters": state.counters[:0],
            "slots": {},
            "rows": (),
        }
        self._begin = msgspec.structs.replace(state, **nothing)
        dense = state.layout.dense
        bounds = slice_bounds(dense.size, state.partition, state.partitions)
        slots = {name: slot if adopts else slot.copy() for name, slot in state.slots.items()}
        self._optimizer = DenseOptimizer(state.optimizer, dense, *bounds, slots)
        self._buffers = LentBuffers(len(state.dense))
        self.version, self.iterations = state.version, state.iterations
        self.ledger = Ledger(state.ledger)
        self.received = self.ledger  # with pushes that wait for more, see `receive`
        self._waiting: list[Push] = []
        self.losses = state.losses  # of the minibatches applied, as far as workers tell them
        self.counts = AppliedCounts(state.counts, state.folded, self.ledger)
        if adopts and state.dense.ctypes.data % ALIGNMENT_BYTES == 0:
            self._dense = state.dense
            self._buffers.adopt(state.dense)
        else:
            self._dense = self._buffers.take()
            copy(self._dense, state.dense)
        self._state, self._counters = state.state.copy(), state.counters.copy()
        self.tables = Tables(state.tables, seed, state.rows)
        state.close()
        rows_count = any(optimizer.counts_steps for optimizer in self.tables.optimizers)
        self._counts_steps = rows_count or self._optimizer.counts_steps
        self._asked: tuple[object, ...] = ()  # what `_made` was made from
        self._made = _NO_STEPS
        self._before: Values | None = None  # sync: the version before, still lent out
        self._sums: dict[int, Vector] = {}  # by length: where the mean of gradients or states is made

    @staticmethod
    def initial(
        *,
        plan_hash: str,
        task_count: int,
        partition: int,
        partitions: int,
        layout: Layout,
        optimizer: OptimizerSpec,
        dense: Vector,
        state: Vector,
        counters: Counters,
        tables: tuple[TableSpec, ...] = (),
    ) -> State:
        """Return the state before training.

        Raises
        ------
        ValueError
            If a slice has not the length that the layout gives it, or an optimizer is not a compiled one.
        """
        _check_slices(layout, (partition, partitions), dense, state, counters)
        counts, folded = no_counts(task_count)
        return State(
            plan_hash=plan_hash,
            base_digest=initial_digest(plan_hash, layout, optimizer, tables, dense, state, counters),
            partition=partition,
            partitions=partitions,
            layout=layout,
            optimizer=optimizer,
            era=NO_IDENTITY,
            version=0,
            iterations=0,
            ledger=LedgerRecord(),
            counts=counts,
            folded=folded,
            dense=dense,
            state=state,
            counters=counters,
            slots=make_optimizer(optimizer.name, optimizer.settings).initial_slots(len(dense)),
            tables=tables,
            rows=[empty_rows(spec) for spec in tables],
        )

    # -- reading

    @property
    def begun(self) -> State:
        """What this store began with."""
        return self._begin

    @property
    def layout(self) -> Layout:
        return self._begin.layout

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(self._optimizer.slots)

    @property
    def dense(self) -> Vector:
        """The newest values themselves, 64-byte aligned: not written before the next step, and by nobody else."""
        return self._dense

    @property
    def state(self) -> Vector:
        return self._state

    @property
    def counters(self) -> Counters:
        return self._counters

    def values(self) -> Values:
        """Return the newest values; they are not written while they are held."""
        return Values(
            version=self.version,
            dense=self._buffers.lend(self._dense),
            state=self._state,
            counters=self._counters,
        )

    def values_before(self) -> Values | None:
        """Return the values one version ago, if a step of this life made the newest."""
        return self._before

    def vector(self, name: str, first: int, count: int) -> tuple[Vector, int]:
        """Return some elements of a vector without padding, and how many it has: `dense`, `state` or an optimizer slot.

        Raises
        ------
        KeyError
            If there is no such vector.
        """
        vectors = {"dense": self._dense, "state": self._state, **self._optimizer.slots}
        layout = self.layout.state if name == "state" else self.layout.dense
        lo, _ = slice_bounds(layout.size, self._begin.partition, self._begin.partitions)
        elements, total = layout.unpadded(vectors[name], lo, first, count)
        return elements.astype(np.float32, copy=False), total

    def capture(self, era: Identity) -> State:
        """Return the state as it is now; later steps do not change it.  To be closed."""
        slots = {name: slot.copy() for name, slot in self._optimizer.slots.items()}
        return msgspec.structs.replace(self.view(era), slots=slots, rows=self.tables.freeze())

    def view(self, era: Identity) -> State:
        """Return the state as it is now, without rows; later steps change its slots.  To be closed."""
        counts, folded = self.counts.record()
        return msgspec.structs.replace(
            self._begin,
            era=era,
            version=self.version,
            iterations=self.iterations,
            ledger=self.ledger.record(),
            counts=counts,
            folded=folded,
            dense=self._buffers.lend(self._dense),
            state=self._state,
            counters=self._counters,
            slots=self._optimizer.slots,
            losses=self.losses,
        )

    @property
    def memory_bytes(self) -> int:
        vectors: tuple[npt.NDArray[np.generic], ...] = (
            self._dense,
            self._state,
            self._counters,
            *self._optimizer.slots.values(),
        )
        vector_bytes = sum(vector.nbytes for vector in vectors) + self._dense.nbytes
        return vector_bytes + self.counts.nbytes + self.tables.memory_bytes

    # -- changing

    def check(self, push: Push, rate_scale: float = 1.0) -> None:
        """Raise ValueError if a push cannot be applied to this partition's slices; nothing has changed.

        It proves what `apply`, `commit` and `flush` rely on: shapes fit, and the optimizers take the learning
        rates times `rate_scale`.
        """
        gradient, state, counters = push.gradient, push.state, push.counters
        if gradient is not None and gradient.shape != self._dense.shape:
            raise _misfit("gradient", gradient, self._dense)
        if state is not None and state.shape != self._state.shape:
            raise _misfit("state", state, self._state)
        if counters is not None and counters.shape != self._counters.shape:
            raise _misfit("counters", counters, self._counters)
        if gradient is None:
            return  # an empty minibatch: nothing else of it is read
        self.tables.check_push(push)
        self._steps(push, rate_scale)

    def apply(self, push: Push, rate_scale: float = 1.0) -> None:
        """Apply one minibatch at once (asynchronous mode); `rate_scale` multiplies the learning rates."""
        steps = _NO_STEPS if push.gradient is None else self._steps(push, rate_scale)
        self.ledger.note(push.task, push.index, is_last=push.is_last, is_empty=push.gradient is None)
        if push.gradient is None:
            return
        # In place, unless the newest values are still being sent.
        out = self._dense if self._buffers.is_free(self._dense) else self._buffers.take(self._dense)
        self._optimizer.apply(steps.dense, out, self._dense, push.gradient)
        self.tables.apply(push, steps.rows)
        self.iterations += 1
        self._dense = out
        if push.state is not None:
            self._state = np.array(push.state, np.float32)
        if push.counters is not None:
            self._counters = np.maximum(self._counters, push.counters)
        self.counts.note(push.task)
        self._note_loss(push.loss)
        self.version += 1

    def receive(self, push: Push) -> int:
        """Take a minibatch that will be applied with others; return how many gradients wait.

        Until `flush` only `received` knows of it: a loss forgets it.
        """
        if self.received is self.ledger:
            self.received = Ledger(self.ledger.record())
        self.received.note(push.task, push.index, is_last=push.is_last, is_empty=push.gradient is None)
        self._waiting.append(push)
        return sum(waiting.gradient is not None for waiting in self._waiting)

    def flush(self) -> None:
        """Apply the minibatches that wait, as one step."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self.commit(waiting)

    def commit(self, pushes: Sequence[Push], slots: Sequence[int] | None = None) -> None:
        """Apply one synchronous step: the pushes of all its open slots, in slot order.

        Gradients are added up as a tree over slots (`tree_mean`) and divided by their number, states are averaged in
        the same way; rows of tables are added in slot order, counters take the largest.  A step with only empty
        minibatches changes no parameter.

        Parameters
        ----------
        pushes : sequence of Push
        slots : sequence of int, optional
            The slot of each, ascending; by default they are numbered as they come.
        """
        numbered = zip(range(len(pushes)) if slots is None else slots, pushes, strict=True)
        places = [slot for slot, push in numbered if push.gradient is not None]
        full = [push for push in pushes if push.gradient is not None]
        steps = self._steps(full[0], 1.0) if full else _NO_STEPS
        for push in pushes:
            self.ledger.note(push.task, push.index, is_last=push.is_last, is_empty=push.gradient is None)
        before = self.values()
        self._before = None  # two buffers in turn: this step may write over the version before
        if full:
            out = self._buffers.take(self._dense)
            gradient = self._mean([p.gradient for p in full if p.gradient is not None], places)
            self._optimizer.apply(steps.dense, out, self._dense, gradient)
            self.tables.commit(full, steps.rows)
            self.iterations += 1
            self._dense = out
            states = {slot: p.state for slot, p in zip(places, full, strict=True) if p.state is not None}
            if states:
                self._state = self._mean(list(states.values()), list(states)).copy()
            counters = [p.counters for p in full if p.counters is not None]
            if counters:
                self._counters = np.maximum.reduce(counters)
            for push in full:
                self.counts.note(push.task)
                self._note_loss(push.loss)
        else:
            self.tables.forget_before()
        self._before = before
        self.version += 1

    def prepare(self, step: MeanStep) -> NextValues:
        """Return what works out the values that a synchronous step leads to, if that is the next one; nothing has changed.

        Raises
        ------
        ValueError
            If a minibatch is not the next one of its task, or a vector does not fit.
        """
        if step.gradient and sum(map(len, step.gradient)) != len(self._dense):
            raise _misfit("gradient", np.concatenate(step.gradient), self._dense)
        if step.state is not None and step.state.shape != self._state.shape:
            raise _misfit("state", step.state, self._state)
        if step.counters is not None and step.counters.shape != self._counters.shape:
            raise _misfit("counters", step.counters, self._counters)
        self._check_next([(task, index) for task, index, *_ in step.minibatches])
        steps = self._optimizer.steps(step.learning_rate, self.iterations) if step.gradient else ()
        return NextValues(step, self._optimizer, steps, self._buffers, self._dense)

    def advance(self, values: NextValues) -> None:
        """Take a step whose values are worked out.  No version before is kept, and no rows are changed."""
        step = values.step
        for task, index, is_last, is_empty, loss in step.minibatches:
            self.ledger.note(task, index, is_last=is_last, is_empty=is_empty)
            if not is_empty:
                self.counts.note(task)
                self._note_loss(loss)
        if step.gradient:
            self._dense = values.dense
            self.iterations += 1
            if step.state is not None:
                self._state = np.array(step.state, np.float32)
            if step.counters is not None:
                self._counters = step.counters
        self.version += 1

    def _check_next(self, minibatches: Sequence[tuple[int, int]]) -> None:
        """Raise ValueError if these are not the next minibatches of as many tasks."""
        if len({task for task, _ in minibatches}) < len(minibatches):
            raise ValueError(f"a step has two minibatches of a task: {minibatches}")
        for task, index in minibatches:
            if task not in self.counts:
                raise ValueError(f"there is no task {task}")
            self.ledger.check(task, index)

    def _note_loss(self, loss: float | None) -> None:
        if loss is not None:
            self.losses = self.losses.plus(loss, is_finite=math.isfinite(loss))

    def _steps(self, push: Push, rate_scale: float) -> "_Steps":
        """Return what the optimizers make of a push's learning rates; the same again as long as it is asked for.

        Raises
        ------
        ValueError
            If an optimizer takes no such rate.
        """
        iteration = self.iterations if self._counts_steps else 0
        asked = (push.learning_rate, push.table_rates, rate_scale, iteration)
        if asked != self._asked or not push.learning_rate:  # 0 equals -0, which makes other bits
            rate = push.learning_rate * rate_scale
            dense = self._optimizer.steps(rate, self.iterations)
            self._made = _Steps(dense, self.tables.steps(push, rate_scale, self.iterations))
            self._asked = asked
        return self._made

    def _mean(self, vectors: Sequence[Vector], places: Sequence[int]) -> Vector:
        """Return the mean, added up as a tree over these places; valid until the next call."""
        if len(vectors) == 1:
            return vectors[0]
        size = len(vectors[0])
        if size not in self._sums:
            self._sums[size] = aligned_empty(size, np.float32)
        mean = self._sums[size]
        tree_mean(mean, vectors, places, len(vectors))
        return mean


def _misfit(name: str, got: npt.NDArray[Any], own: npt.NDArray[Any]) -> ValueError:
    return ValueError(f"{name} has shape {got.shape}, this partition's slice is {own.shape}")


def read(body: ReadVector | ReadTables, store: Store) -> VectorPart | TableDigests:
    """Return a piece of a vector, or the digests of all tables.

    Raises
    ------
    RemoteProtocolError
        If there is no such vector.
    """
    if isinstance(body, ReadTables):
        return TableDigests(digests=tuple(digest.to_bytes(16, "little") for digest in store.tables.digests()))
    try:
        values, total = store.vector(body.vector, body.first, body.count)
    except KeyError:
        raise RemoteProtocolError(f"there is no vector {body.vector!r}; slots: {store.slots}") from None
    return VectorPart(total=total, slots=store.slots, values=values)

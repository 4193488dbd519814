"""The tensors of one partition, the ledger of what is in them, and how a step changes both at once.

Owns: the slices of the dense, state and counter vectors, the optimizer slots, the version before
(synchronous mode).  Does not own: when a step is due (the partition's), files (the snapshots').
"""

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.core_ext.dense import add, copy, divide
from edlz.core_ext.optimizers import make_optimizer
from edlz.services.layout import Layout, slice_bounds
from edlz.services.ledger import Ledger, LedgerRecord
from edlz.services.messages import NO_IDENTITY, Identity, OptimizerSpec, Push, SnapshotName
from edlz.services.ps.buffers import LentBuffers

__all__ = ["State", "Store", "Values", "initial_digest"]

Vector = npt.NDArray[np.float32]
Counters = npt.NDArray[np.int64]


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """This partition's slices of the three vectors at one version."""

    version: int
    dense: Vector
    state: Vector
    counters: Counters


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's whole state at one instant, as a snapshot stores it.

    `counts` is how often the apply path applied a minibatch of each task: the check on the ledger's
    marks, raised where the gradient is applied and nowhere else.
    """

    plan_hash: str
    base_digest: str
    partition: int
    partitions: int
    layout: Layout
    optimizer: OptimizerSpec
    era: Identity
    version: int
    iterations: int
    ledger: LedgerRecord
    counts: npt.NDArray[np.int32]
    dense: Vector
    state: Vector
    counters: Counters
    slots: dict[str, Vector]

    @property
    def name(self) -> SnapshotName:
        return (self.era, self.version)


def initial_digest(
    plan_hash: str, layout: Layout, optimizer: OptimizerSpec, dense: Vector, state: Vector, counters: Counters
) -> str:
    """Return what two workers compare to see that they would begin from the same partition state."""
    digest = hashlib.sha256(plan_hash.encode() + layout.hash.encode() + msgspec.json.encode(optimizer))
    for vector in (dense, state, counters):
        digest.update(np.ascontiguousarray(vector).data)
    return digest.hexdigest()


class Store:
    """The state of one partition, changed by whole minibatches only.

    Parameters
    ----------
    state : State
        Where to begin; its arrays are copied.
    """

    def __init__(self, state: State) -> None:
        self._begin = state
        self._optimizer = make_optimizer(state.optimizer.name, state.optimizer.settings)
        self._buffers = LentBuffers(len(state.dense))
        self.version, self.iterations = state.version, state.iterations
        self.ledger = Ledger(state.ledger)
        self.counts = state.counts.copy()
        self._dense = self._buffers.take()
        copy(self._dense, state.dense)
        self._state, self._counters = state.state.copy(), state.counters.copy()
        self._slots = {name: slot.copy() for name, slot in state.slots.items()}
        self._before: Values | None = None  # sync: the version before, still lent out
        self._sums: dict[int, Vector] = {}  # by length: what gradients and states are added up in

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
    ) -> State:
        """Return the state before training.

        Raises
        ------
        ValueError
            If a slice has not the length that the layout gives this partition, or the optimizer is not
            one of the compiled ones.
        """
        for name, vector, size in (
            ("dense", dense, layout.dense.size),
            ("state", state, layout.state.size),
            ("counters", counters, layout.counters.size),
        ):
            lo, hi = slice_bounds(size, partition, partitions)
            if vector.shape != (hi - lo,):
                raise ValueError(f"{name} slice has shape {vector.shape}, the layout gives {(hi - lo,)}")
        slots = make_optimizer(optimizer.name, optimizer.settings).initial_slots(len(dense))
        return State(
            plan_hash=plan_hash,
            base_digest=initial_digest(plan_hash, layout, optimizer, dense, state, counters),
            partition=partition,
            partitions=partitions,
            layout=layout,
            optimizer=optimizer,
            era=NO_IDENTITY,
            version=0,
            iterations=0,
            ledger=LedgerRecord(),
            counts=np.zeros(task_count, np.int32),
            dense=dense,
            state=state,
            counters=counters,
            slots=slots,
        )

    # -- reading

    @property
    def base_digest(self) -> str:
        return self._begin.base_digest

    @property
    def layout(self) -> Layout:
        return self._begin.layout

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(self._slots)

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

    def vector(self, name: str) -> Vector:
        """Return a vector without padding: `dense`, `state` or an optimizer slot.

        Raises
        ------
        KeyError
            If there is no such vector.
        """
        vectors = {"dense": self._dense, "state": self._state, **self._slots}
        layout = self.layout.state if name == "state" else self.layout.dense
        lo, _ = slice_bounds(layout.size, self._begin.partition, self._begin.partitions)
        return layout.unpadded(vectors[name], lo).astype(np.float32, copy=False)

    def capture(self, era: Identity) -> State:
        """Return the state as it is now; later steps do not change it."""
        return msgspec.structs.replace(
            self._begin,
            era=era,
            version=self.version,
            iterations=self.iterations,
            ledger=self.ledger.record(),
            counts=self.counts.copy(),
            dense=self._buffers.lend(self._dense),
            state=self._state,
            counters=self._counters,
            slots={name: slot.copy() for name, slot in self._slots.items()},
        )

    @property
    def memory_bytes(self) -> int:
        vectors: tuple[npt.NDArray[np.generic], ...] = (
            self._dense,
            self._state,
            self._counters,
            self.counts,
            *self._slots.values(),
        )
        return sum(vector.nbytes for vector in vectors) + self._dense.nbytes

    # -- changing

    def check(self, push: Push) -> None:
        """Raise ValueError if a push does not fit this partition's slices; nothing has changed."""
        for name, got, own in (
            ("gradient", push.gradient, self._dense),
            ("state", push.state, self._state),
            ("counters", push.counters, self._counters),
        ):
            if got is not None and got.shape != own.shape:
                raise ValueError(f"{name} has shape {got.shape}, this partition's slice is {own.shape}")

    def apply(self, push: Push) -> None:
        """Apply one minibatch at once (asynchronous mode)."""
        self.ledger.note(push.task, push.index, is_last=push.is_last, is_empty=push.gradient is None)
        if push.gradient is None:
            return
        # In place, unless the newest values are still being sent.
        out = self._dense if self._buffers.is_free(self._dense) else self._buffers.take(self._dense)
        self._step(out, push.gradient, push.learning_rate)
        self._dense = out
        if push.state is not None:
            self._state = np.array(push.state, np.float32)
        if push.counters is not None:
            self._counters = np.maximum(self._counters, push.counters)
        self.counts[push.task] += 1
        self.version += 1

    def commit(self, pushes: Sequence[Push]) -> None:
        """Apply one synchronous step: the pushes of all its open slots, in slot order.

        The gradients are added in that order and divided by their number; states are averaged in the
        same way, counters take the largest.  A step with only empty minibatches changes no parameter.
        """
        for push in pushes:
            self.ledger.note(push.task, push.index, is_last=push.is_last, is_empty=push.gradient is None)
        full = [push for push in pushes if push.gradient is not None]
        before = self.values()
        self._before = None  # two buffers in turn: this step may write over the version before
        if full:
            out = self._buffers.take(self._dense)
            gradient = self._mean([p.gradient for p in full if p.gradient is not None])
            self._step(out, gradient, full[0].learning_rate)
            self._dense = out
            states = [p.state for p in full if p.state is not None]
            if states:
                self._state = self._mean(states).copy()
            counters = [p.counters for p in full if p.counters is not None]
            if counters:
                self._counters = np.maximum.reduce(counters)
            for push in full:
                self.counts[push.task] += 1
        self._before = before
        self.version += 1

    def _step(self, out: Vector, gradient: Vector, learning_rate: float) -> None:
        self._optimizer.apply(out, self._dense, self._slots, gradient, learning_rate, self.iterations)
        self.iterations += 1

    def _mean(self, vectors: Sequence[Vector]) -> Vector:
        """Return the mean, added up in the given order; valid until the next call."""
        if len(vectors) == 1:
            return vectors[0]
        size = len(vectors[0])
        if size not in self._sums:
            self._sums[size] = np.empty(size, np.float32)
        total = self._sums[size]
        copy(total, vectors[0])
        for vector in vectors[1:]:
            add(total, vector)
        divide(total, len(vectors))
        return total

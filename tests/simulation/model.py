"""The model that simulated jobs train: small, and dependent on every bit that it was computed from."""

import zlib

import msgspec
import numpy as np

from edlz.services.parameters.store import Store
from edlz.services.protocol.layout import Layout, Variable, VectorLayout, slice_bounds
from edlz.services.protocol.messages import InitializerSpec, OptimizerSpec, Push, RowIds, TableSpec
from edlz.services.protocol.plan import Plan
from edlz.services.storage.state import MemoryRows, State

__all__ = [
    "LAYOUT",
    "OPTIMIZER",
    "TABLES",
    "compute_gradient",
    "compute_rows",
    "final_bytes",
    "initial_state",
    "initial_vectors",
    "make_push",
    "same_ids",
    "trained_vectors",
    "with_rows",
]

WIDTH = 70  # elements of the dense vector: five blocks of 16, so that four partitions differ in size
OPTIMIZER = OptimizerSpec(name="Adam", settings={"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7})
LAYOUT = Layout(
    dense=VectorLayout(variables=(Variable(path="kernel", shape=(7, 10)),)),
    state=VectorLayout(variables=(Variable(path="mean", shape=(20,)),)),
    counters=VectorLayout(variables=(Variable(path="count", shape=()),)),
)
TABLES = (
    TableSpec(
        path="users",
        dim=3,
        initializer=InitializerSpec(kind="uniform", a=-0.05, b=0.05),
        optimizer=OptimizerSpec(name="Adagrad", settings={}),
    ),
    TableSpec(
        path="items",
        dim=4,
        initializer=InitializerSpec(kind="normal", a=0.0, b=1.0),
        optimizer=OPTIMIZER,
    ),
)


def initial_vectors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    dense = np.zeros(LAYOUT.dense.size, np.float32)
    dense[:WIDTH] = np.linspace(-1, 1, WIDTH, dtype=np.float32)
    return dense, np.zeros(LAYOUT.state.size, np.float32), np.zeros(LAYOUT.counters.size, np.int64)


def trained_vectors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a checkpoint of another job holds: nothing that a worker would begin with."""
    dense, state, counters = initial_vectors()
    dense[:WIDTH] = np.cos(np.arange(WIDTH, dtype=np.float32))
    return dense, state + np.float32(0.5), counters + 7


def initial_state(
    plan: Plan,
    vectors: tuple[np.ndarray, ...] | None = None,
    tables: tuple[TableSpec, ...] = (),
    *,
    plan_hash: str = "",
    place: tuple[int, int] = (0, 1),
) -> State:
    """Return what a partition begins with: of a plan, unless its hash is given, and the vectors that a job begins with.

    Parameters
    ----------
    vectors : tuple of ndarray, optional
        Whole ones: dense, state, counters.
    place : (int, int)
        The partition, of how many.
    """
    whole = vectors or initial_vectors()
    cuts = [slice(*slice_bounds(len(vector), *place)) for vector in whole]
    dense, state, counters = (vector[cut] for vector, cut in zip(whole, cuts, strict=True))
    return Store.initial(
        plan_hash=plan_hash or plan.hash,
        task_count=plan.task_count,
        partition=place[0],
        partitions=place[1],
        layout=LAYOUT,
        optimizer=OPTIMIZER,
        dense=dense,
        state=state,
        counters=counters,
        tables=tables,
    )


def compute_gradient(
    dense: np.ndarray,
    state: np.ndarray,
    counters: np.ndarray,
    task: int,
    index: int,
    rows: bytes = b"",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A gradient that depends on every bit of the parameters and on the minibatch's name."""
    key = zlib.crc32(dense.tobytes() + state.tobytes() + rows + repr((task, index)).encode())
    rng = np.random.Generator(np.random.PCG64(key))
    gradient = np.zeros_like(dense)
    gradient[:WIDTH] = rng.standard_normal(WIDTH, np.float32)
    new_state = (state * np.float32(0.9) + rng.standard_normal(1, np.float32)).astype(np.float32)
    return gradient, new_state, counters + 1


def compute_rows(
    asked: tuple[RowIds, ...], rows: tuple[np.ndarray, ...], task: int, index: int
) -> tuple[bytes, tuple[np.ndarray, ...]]:
    """The bytes of all rows by id, and their gradients: the same for any number of partitions."""
    seen, gradients, starts = [], [], [0] * len(asked)
    for t, block in enumerate(rows):
        ids = np.concatenate(
            [part.ids[s : s + part.counts[t]] for part, s in zip(asked, starts, strict=True)]
        )
        starts = [s + part.counts[t] for part, s in zip(asked, starts, strict=True)]
        order = np.argsort(ids)
        seen += [ids[order].tobytes(), block[order].tobytes()]
        key = zlib.crc32(b"".join(seen) + repr((task, index, t)).encode())
        gradient = np.empty_like(block)
        gradient[order] = np.random.Generator(np.random.PCG64(key)).standard_normal(block.shape, np.float32)
        gradients.append(gradient)
    return b"".join(seen), tuple(gradients)


def make_push(
    task: int, index: int, length: int, *parts: np.ndarray, rate: float = 0.01, loss: float | None = None
) -> Push:
    gradient, state, counters = parts if length else (None, None, None)
    return Push(
        task=task,
        index=index,
        is_last=index + 1 >= length,
        learning_rate=rate,
        gradient=gradient,
        state=state,
        counters=counters,
        loss=loss if length else None,
    )


def with_rows(push: Push, rows: RowIds, gradients: np.ndarray) -> Push:
    if push.gradient is None:
        return push
    return msgspec.structs.replace(push, rows=rows, row_gradients=gradients)


def final_bytes(states: list[State]) -> bytes:
    parts = [np.concatenate([state.dense for state in states]), np.concatenate([s.state for s in states])]
    parts += [np.concatenate([s.slots[name] for s in states]) for name in states[0].slots]
    parts += [np.concatenate([s.counters for s in states])]
    for t in range(len(states[0].tables)):
        copies = [MemoryRows.of(state.rows[t]) for state in states]
        ids = np.concatenate([copy.ids for copy in copies])
        rows = np.concatenate([copy.rows for copy in copies])
        order = np.argsort(ids)
        parts += [ids[order], rows[order]]
    return b"".join(part.tobytes() for part in parts)


def same_ids(one: tuple[RowIds, ...] | None, other: tuple[RowIds, ...] | None) -> bool:
    if one is None or other is None:
        return one is other
    pairs = zip(one, other, strict=True)
    return all(a.counts == b.counts and a.ids.tolist() == b.ids.tolist() for a, b in pairs)

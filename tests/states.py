"""States of partitions for the tests of files: random numbers, cut into partitions as a job would."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from edlz.core_ext.ids import partition_of
from edlz.core_ext.optimizers import make_optimizer
from edlz.services.protocol.layout import Layout, Variable, VectorLayout, slice_bounds
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import (
    Ends,
    Identity,
    InitializerSpec,
    OptimizerSpec,
    PartInfo,
    TableSpec,
)
from edlz.services.storage.checkpoint_records import Manifest, version_folder
from edlz.services.storage.checkpoint_writing import Finished, write_manifest, write_part
from edlz.services.storage.state import MemoryRows, State, TableRows

__all__ = [
    "assert_same_state",
    "finish_version",
    "make_cut",
    "make_state",
    "merged",
    "save",
    "table_spec",
    "write_parts",
]

ADAM = OptimizerSpec(name="Adam", settings={"beta_1": 0.9, "amsgrad": False})
EXTREME_IDS = (-(2**63), -1, 0, 1, 2**63 - 1)


def table_spec(path: str, dim: int, optimizer: str = "Adagrad") -> TableSpec:
    return TableSpec(
        path=path,
        dim=dim,
        initializer=InitializerSpec(kind="uniform", a=-0.05, b=0.05),
        optimizer=OptimizerSpec(name=optimizer, settings={}),
    )


def make_cut(
    partitions: int,
    *,
    seed: int = 0,
    shapes: Sequence[tuple[int, ...]] = ((4, 8), (3,), (50,)),
    tables: Sequence[tuple[int, str, int]] = ((4, "Adagrad", 40), (3, "Adam", 7)),
    era: Identity = (1, 2),
    version: int = 7,
) -> list[State]:
    """Return the states of all partitions at one cut.

    Parameters
    ----------
    shapes : of the dense variables; the same again are state and counters
    tables : of each its dimension, optimizer and number of rows in all partitions
    """
    rng = np.random.default_rng(seed)
    vector = VectorLayout(variables=tuple(Variable(path=f"v{i}", shape=s) for i, s in enumerate(shapes)))
    layout = Layout(dense=vector, state=vector, counters=vector)
    names = ("dense", "state", "momentum", "velocity")
    floats = {name: _any_floats(rng, vector.size) for name in names}
    counters = rng.integers(-(2**63), 2**63 - 1, vector.size, np.int64)
    specs = tuple(table_spec(f"table {t} ü", dim, optimizer) for t, (dim, optimizer, _) in enumerate(tables))
    rows = [
        (_ids(rng, count), _any_floats(rng, count * _width(spec)).reshape(count, _width(spec)))
        for spec, (_, _, count) in zip(specs, tables, strict=True)
    ]
    out = []
    for partition in range(partitions):
        lo, hi = slice_bounds(vector.size, partition, partitions)
        out.append(
            State(
                plan_hash="plan",
                base_digest="digest",
                partition=partition,
                partitions=partitions,
                layout=layout,
                optimizer=ADAM,
                era=era,
                version=version,
                iterations=5,
                ledger=LedgerRecord(finished=(0, 3), marks=((4, 2),), minibatches=11),
                counts=np.array([4, 4, 1, 0, 2], np.int32),
                dense=floats["dense"][lo:hi],
                state=floats["state"][lo:hi],
                counters=counters[lo:hi],
                slots={name: floats[name][lo:hi] for name in ("momentum", "velocity")},
                tables=specs,
                rows=tuple(_own(ids, values, partition, partitions) for ids, values in rows),
            )
        )
    return out


def make_state(*, rows: Sequence[TableRows] | None = None, **about: Any) -> State:
    """Return the state of the only partition, with other rows if some are given; the rest as of `make_cut`."""
    state = make_cut(1, **about)[0]
    return state if rows is None else msgspec.structs.replace(state, rows=tuple(rows))


def write_parts(folder: Path, cut: Sequence[State], *, number: int = 0, run: str = "r") -> list[PartInfo]:
    """Write all parts of a checkpoint; `number` 0: the version."""
    out = []
    for state in cut:
        version = state.version
        info = write_part(folder, state, version=version, number=number or version, run=run, tag="a")
        assert info is not None
        out.append(info)
    return out


def finish_version(
    folder: Path,
    parts: Sequence[PartInfo],
    version: int,
    *,
    number: int = 0,
    run: str = "r",
    mode: str = "sync",
    ends: Ends = (),
) -> Manifest:
    """Write the manifest of parts; `number` 0: the version."""
    finished = Finished(
        job="mnist",
        run=run,
        mode=mode,  # type: ignore[arg-type]
        number=number or version,
        epoch=1,
        minibatches=2 * version,
        ends=ends,
    )
    return write_manifest(folder, version, parts, finished, tag="m")


def save(folder: Path, version: int = 7, *, partitions: int = 1, run: str = "r", seed: int = 0) -> Path:
    """Write a whole checkpoint; return the folder of its version."""
    cut = make_cut(partitions, version=version, seed=seed)
    finish_version(folder, write_parts(folder, cut, run=run), version, run=run)
    return version_folder(folder, version)


def merged(states: Sequence[State]) -> dict[str, bytes]:
    """Return all that is in the partitions' states, however many there are: vectors, and rows by id."""
    out = {}
    for name in ("dense", "state", "counters"):
        out[name] = np.concatenate([getattr(state, name) for state in states]).tobytes()
    for name in states[0].slots:
        out[f"slot {name}"] = np.concatenate([state.slots[name] for state in states]).tobytes()
    for t in range(len(states[0].rows)):
        parts = [MemoryRows.of(state.rows[t]) for state in states]
        ids = np.concatenate([part.ids for part in parts])
        values = np.concatenate([_values(part) for part in parts])
        order = np.argsort(ids)
        out[f"ids {t}"], out[f"rows {t}"] = ids[order].tobytes(), values[order].tobytes()
    return out


def assert_same_state(ours: State, theirs: State, *, but: Sequence[str] = ()) -> None:
    """Compare bit by bit; fields of the names in `but` may differ."""
    for name in State.__struct_fields__:
        if name in but:
            continue
        one, other = getattr(ours, name), getattr(theirs, name)
        if isinstance(one, np.ndarray):
            _assert_same_bits(name, one, other)
        elif name == "slots":
            assert list(one) == list(other)
            for slot in one:
                _assert_same_bits(slot, one[slot], other[slot])
        elif name == "rows":
            assert len(one) == len(other)
            for left, right in zip(one, other, strict=True):
                assert (left.row_count, left.width) == (right.row_count, right.width)
                _assert_same_bits("ids", left.ids, right.ids)
                _assert_same_bits("rows", _values(MemoryRows.of(left)), _values(MemoryRows.of(right)))
        else:
            assert one == other, name


def _assert_same_bits(name: str, one: npt.NDArray[np.generic], other: npt.NDArray[np.generic]) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape), name
    assert one.tobytes() == other.tobytes(), name


def _values(rows: MemoryRows) -> npt.NDArray[np.float32]:
    out = np.empty(rows.row_count * rows.width, np.float32)
    rows.read(0, rows.row_count, out)
    return out.reshape(rows.row_count, rows.width)


def _width(spec: TableSpec) -> int:
    optimizer = make_optimizer(spec.optimizer.name, spec.optimizer.settings)
    return spec.dim + sum(slot.size for slot in optimizer.row_slots(spec.dim))


def _any_floats(rng: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    """Return any bits at all: NaNs with their payload, infinities and denormals among them."""
    return np.frombuffer(rng.bytes(4 * count), np.float32)


def _ids(rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    drawn = rng.integers(-(2**63), 2**63 - 1, 2 * count, np.int64)
    ids = np.unique(np.concatenate([np.array(EXTREME_IDS, np.int64), drawn]))
    return rng.permutation(ids)[:count]


def _own(
    ids: npt.NDArray[np.int64], values: npt.NDArray[np.float32], partition: int, partitions: int
) -> MemoryRows:
    is_own = partition_of(ids, partitions) == partition
    return MemoryRows(ids[is_own], values[is_own])

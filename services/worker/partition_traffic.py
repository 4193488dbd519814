"""What goes between the minibatches of one worker and the partitions: ids to look up, rows, and pushes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from edlz.core_ext.memory import aligned_empty
from edlz.services.errors import LocalProtocolError
from edlz.services.protocol.messages import Push, RowIds
from edlz.services.worker.core.computation import Computed
from edlz.services.worker.parameters import slice_of

__all__ = ["Rates", "join_rows", "make_pushes", "row_ids", "split_gradients"]

Vector = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_NO_IDS, _NO_VALUES = np.empty(0, np.int64), np.empty(0, np.float32)


def row_ids(tables: Sequence[tuple[Ids, Ids]], partitions: int) -> tuple[RowIds, ...]:
    """Return what each partition is asked.

    Parameters
    ----------
    tables : sequence of (ids, counts)
        Of each table the distinct ids, grouped by partition, and how many each partition has.
    """
    pieces: list[list[Ids]] = [[] for _ in range(partitions)]
    for ids, counts in tables:
        for p, (begin, end) in enumerate(_bounds(counts.tolist())):
            pieces[p].append(ids[begin:end])
    return tuple(
        RowIds(
            counts=tuple(map(len, parts)),
            ids=parts[0] if len(parts) == 1 else np.concatenate([_NO_IDS, *parts]),
        )
        for parts in pieces
    )


def join_rows(
    asked: Sequence[RowIds], rows: Sequence[Vector | None], dims: Sequence[int]
) -> tuple[Vector, ...]:
    """Return each table's rows, in the order of its ids.

    Returns
    -------
    tuple of ndarray, shape (m, dim), float32, 64-byte aligned

    Raises
    ------
    LocalProtocolError
        If a partition was asked for rows, and none of it are there.
    """
    joined = []
    starts = [0] * len(asked)
    for t, dim in enumerate(dims):
        sizes = [part.counts[t] * dim for part in asked]
        block = aligned_empty(sum(sizes), np.float32)
        for p, (begin, end) in enumerate(_bounds(sizes)):
            source = rows[p]
            if begin < end:
                if source is None:
                    raise LocalProtocolError(f"partition {p} answered without the rows that it was asked for")
                block[begin:end] = source[starts[p] : starts[p] + end - begin]
            starts[p] += end - begin
        joined.append(block.reshape(-1, dim))
    return tuple(joined)


def split_gradients(asked: Sequence[RowIds], gradients: Sequence[Vector]) -> tuple[Vector, ...]:
    """Return what each partition gets of the tables' gradients, in the order of the ids that it was asked.

    Parameters
    ----------
    gradients : sequence of ndarray, shape (m, dim), float32
    """
    pieces: list[list[Vector]] = [[] for _ in asked]
    for t, gradient in enumerate(gradients):
        flat, dim = gradient.reshape(-1), gradient.shape[1]
        for p, (begin, end) in enumerate(_bounds([part.counts[t] * dim for part in asked])):
            pieces[p].append(flat[begin:end])
    return tuple(parts[0] if len(parts) == 1 else np.concatenate([_NO_VALUES, *parts]) for parts in pieces)


def _bounds(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    begin = 0
    for end in accumulate(sizes):
        yield begin, end
        begin = end


@dataclass(frozen=True, slots=True)
class Rates:
    """Learning rates of a step: the model's, and each table's where one differs."""

    model: float
    tables: tuple[float, ...]


def make_pushes(
    computed: Computed, rates: Rates, ids: tuple[RowIds, ...], partitions: int, loss: float | None
) -> tuple[Push, ...]:
    """Return the push of a minibatch for each partition; views, no copies.

    Parameters
    ----------
    ids : tuple of RowIds
        The rows that it looked up, by partition; empty without embedding tables.
    loss : float, optional
        To be told to callbacks.
    """
    gradient, state, counters = computed.gradient, computed.state, computed.counters
    has_rows = bool(ids) and gradient is not None
    row_gradients = split_gradients(ids, computed.row_gradients) if has_rows else ()
    return tuple(
        Push(
            task=computed.task,
            index=computed.index,
            is_last=computed.is_last,
            learning_rate=rates.model,
            gradient=None if gradient is None else slice_of(gradient, p, partitions),
            state=None if state is None else slice_of(state, p, partitions),
            counters=None if counters is None else slice_of(counters, p, partitions),
            rows=ids[p] if has_rows else None,
            row_gradients=row_gradients[p] if has_rows else None,
            table_rates=rates.tables,
            loss=loss,
        )
        for p in range(partitions)
    )

"""From what a minibatch gave to what each partition is sent of it."""

from dataclasses import dataclass

from edlz.services.protocol.messages import Push, RowIds
from edlz.services.worker.core.computation import Computed
from edlz.services.worker.parameters import slice_of
from edlz.services.worker.row_traffic import split_gradients

__all__ = ["Rates", "make_pushes"]


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

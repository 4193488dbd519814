"""Embedding tables of edlz, made and filled for a benchmark."""

import numpy as np

from edlz.core_ext.optimizers import make_optimizer
from edlz.core_ext.table import EmbeddingTable, Initializer

__all__ = ["filled_table", "packed_step"]

IDS_PER_CALL = 1 << 16
LEARNING_RATE = 0.01


def filled_table(optimizer: str, rows: int, dim: int) -> EmbeddingTable:
    """Return a table that has rows of the ids 0 to `rows` - 1, made by empty gradients."""
    slots = [(slot.size, slot.initial) for slot in make_optimizer(optimizer, {}).row_slots(dim)]
    table = EmbeddingTable(dim, slots, Initializer("uniform", -0.05, 0.05), 0)
    step = packed_step(optimizer)
    gradients = np.zeros(IDS_PER_CALL * dim, np.float32)
    for first in range(0, rows, IDS_PER_CALL):
        ids = np.arange(first, min(first + IDS_PER_CALL, rows))
        table.apply(step, ids, gradients[: len(ids) * dim])
    return table


def packed_step(optimizer: str) -> bytes:
    """Return the first step of an optimizer as a table takes it."""
    packed: bytes = make_optimizer(optimizer, {}).step(LEARNING_RATE, 0).packed
    return packed

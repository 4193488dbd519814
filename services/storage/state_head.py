"""The head of a state's two files: everything of a State but its numbers.

It says what the file of the numbers must be, and whether it is itself whole (see envelope).
"""

from pathlib import Path

import msgspec

from edlz.core_ext.optimizers import make_optimizer
from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.layout import Layout
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.messages import Identity, OptimizerSpec, TableSpec
from edlz.services.storage import envelope
from edlz.services.storage.blocks import BlockChecksums
from edlz.services.storage.state import State

__all__ = ["FORMAT", "StateHead", "TableHead", "body_of", "head_data", "read_head", "table_heads"]

FORMAT = 2  # 1 had no tables


class TableHead(msgspec.Struct, frozen=True, kw_only=True):
    """A table: what it is, and how many rows of it this partition has.

    `columns` names what a row of `width` numbers holds, in order.
    """

    spec: TableSpec
    row_count: int
    width: int
    columns: tuple[str, ...]


class StateHead(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a State but its numbers, and what the file of the numbers must be."""

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
    slots: tuple[str, ...]
    tables: tuple[TableHead, ...]
    body: BlockChecksums
    losses: LossSum = LossSum()
    folded: int = -1


def body_of(head: Path) -> Path:
    """Return where the tensors lie of which a head speaks."""
    return head.with_suffix(".safetensors")


def read_head(head: Path) -> tuple[StateHead, bytes]:
    """Return a head, and its bytes.

    Raises
    ------
    DamagedFile
        If it is missing, not whole, or of another format.
    """
    return envelope.read(head, FORMAT, StateHead)


def head_data(state: State, body: BlockChecksums) -> bytes:
    """Return the bytes of a state's head, whose tensors have been written."""
    head = StateHead(
        plan_hash=state.plan_hash,
        base_digest=state.base_digest,
        partition=state.partition,
        partitions=state.partitions,
        layout=state.layout,
        optimizer=state.optimizer,
        era=state.era,
        version=state.version,
        iterations=state.iterations,
        ledger=state.ledger,
        slots=tuple(state.slots),
        tables=table_heads(state),
        body=body,
        losses=state.losses,
        folded=state.folded,
    )
    return envelope.encode(FORMAT, head)


def table_heads(state: State) -> tuple[TableHead, ...]:
    """Return what is to be said of a state's tables."""
    return tuple(
        TableHead(spec=spec, row_count=rows.row_count, width=rows.width, columns=_columns(spec))
        for spec, rows in zip(state.tables, state.rows, strict=True)
    )


def _columns(spec: TableSpec) -> tuple[str, ...]:
    slots = make_optimizer(spec.optimizer.name, spec.optimizer.settings).row_slots(spec.dim)
    return (f"values[{spec.dim}]", *(f"{slot.name}[{slot.size}]" for slot in slots))

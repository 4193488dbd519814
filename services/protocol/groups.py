"""What the members of an all-reduce group say to each other and to the master, and how they share the slots of a step.

A *group* holds the whole model several times: each *member* (a life of a worker, named by its incarnation) has a
replica.  A *generation* is one unbroken history of one group.  A state's *name* is the generation of its last step
and its version; names are compared in that order.  A *node* of the tree over slots is a range [lo, hi); what is
added up in it may stand at its first slot (`dense_numpy.tree_mean`).
"""

from typing import Literal

from edlz.services.protocol.concluded_rounds import LossSum
from edlz.services.protocol.layout import slice_bounds
from edlz.services.protocol.ledger import LedgerRecord
from edlz.services.protocol.message_types import Message, Record
from edlz.services.protocol.messages import NO_IDENTITY, Counters, DenseVector, Ends, Identity, SnapshotName

__all__ = [
    "BASE",
    "FetchState",
    "GroupOrders",
    "GroupRefused",
    "Member",
    "MemberPhase",
    "MemberStatus",
    "Reduce",
    "Reduced",
    "SlotFailure",
    "SlotHeader",
    "StateHead",
    "StatePiece",
    "WrittenPart",
    "block_of",
    "buckets_of",
    "nodes_of",
]

BASE: SnapshotName = (NO_IDENTITY, 0)  # the state before training
MemberPhase = Literal[
    "starting", "waiting", "promised", "fetching", "computing", "staged", "failed", "sealing", "sealed"
]


# ---------------------------------------------------------------- worker <-> master


class Member(Record, frozen=True, kw_only=True):
    """A life of a worker, and where the others reach it."""

    incarnation: Identity
    worker: str
    endpoint: str = ""


class SlotFailure(Record, frozen=True, kw_only=True):
    """The user's code raised where a member looked at this minibatch."""

    task: int
    index: int
    error: str = ""


class WrittenPart(Record, frozen=True, kw_only=True):
    """Part `rank` of `count` of a state is durable."""

    name: SnapshotName
    rank: int
    count: int


class MemberStatus(Record, frozen=True, kw_only=True):
    """What a worker of an all-reduce job says of its replica.

    `members`: of the group it takes steps in, () while it is in none.  `lacks`: members of which it has waited long for a
    part of the step, or of the state; `unanswered`: owners of which it has for a mean; `has_mean`: its own are done.
    """

    term: int
    phase: MemberPhase
    generation: Identity
    members: tuple[Identity, ...]
    name: SnapshotName
    finished: tuple[int, ...]  # bounds of a TaskSet
    lacks: tuple[Identity, ...] = ()
    unanswered: tuple[Identity, ...] = ()
    has_mean: bool = False
    failed: SlotFailure | None = None
    written: tuple[WrittenPart, ...] = ()
    unreadable: SnapshotName | None = None  # it was to read this state, and cannot


class GroupOrders(Record, frozen=True, kw_only=True):
    """What is to be true of a worker of an all-reduce job.

    Without members: promise the generation, and wait; if it `is_join`, after the step in work.  `load`: read this state.
    """

    term: int
    generation: Identity
    members: tuple[Member, ...] = ()
    source: SnapshotName = BASE
    holders: tuple[Identity, ...] = ()
    load: SnapshotName | None = None
    ends: Ends = ()
    is_join: bool = False
    stop: bool = False
    finished: bool = False


# ---------------------------------------------------------------- member -> member


class SlotHeader(Record, frozen=True, kw_only=True, order=True):
    """The minibatch in a slot of a step; `loss` and `records` are for display and callbacks."""

    slot: int
    task: int
    index: int
    is_last: bool
    is_empty: bool
    records: int = 0
    loss: float | None = None


class Reduce(Message, frozen=True, kw_only=True, tag=50):
    """Member -> owner of a chunk, answered by Reduced when the parts of all members are there, or by GroupRefused.

    `places`: first slots of the nodes that the member has added up; `dense` and `state` have the bucket's piece of
    each.  What all must agree on comes from rank 0: `learning_rate`, and `snapshot_at`, a version that all write.
    """

    generation: Identity
    version: int
    rank: int  # of the sender
    bucket: int
    headers: tuple[SlotHeader, ...]
    places: tuple[int, ...] = ()
    dense: tuple[DenseVector, ...] = ()
    state: tuple[DenseVector, ...] = ()  # with bucket 0
    counters: Counters | None = None  # the largest of the member's slots, to rank 0 with bucket 0
    learning_rate: float = 0.0
    snapshot_at: int = 0


class Reduced(Message, frozen=True, kw_only=True, tag=51):
    """The mean over all slots of a bucket; None if all were empty.  `headers`: of all slots, the same in all answers."""

    generation: Identity
    version: int
    bucket: int
    headers: tuple[SlotHeader, ...]
    dense: DenseVector | None = None
    state: DenseVector | None = None
    counters: Counters | None = None
    learning_rate: float = 0.0
    snapshot_at: int = 0


class GroupRefused(Message, frozen=True, kw_only=True, tag=52):
    """`generation`: what the refusing member has promised."""

    reason: Literal["not ready", "generation", "moved on"]
    generation: Identity


class FetchState(Message, frozen=True, kw_only=True, tag=53):
    """New member -> holder of the source, answered by StatePiece or GroupRefused: piece `piece` of `pieces` of a state."""

    generation: Identity
    name: SnapshotName
    piece: int
    pieces: int


class StateHead(Record, frozen=True, kw_only=True):
    """All of a state that is not cut into pieces, and the digest of the whole."""

    iterations: int
    ledger: LedgerRecord
    losses: LossSum
    digest: str


class StatePiece(Message, frozen=True, kw_only=True, tag=54):
    """`head`, `counts` and `counters` come with piece 0."""

    generation: Identity
    name: SnapshotName
    piece: int
    dense: DenseVector
    state: DenseVector
    slots: tuple[DenseVector, ...]
    head: StateHead | None = None
    counts: Counters | None = None
    counters: Counters | None = None


# ---------------------------------------------------------------- who has which slots and elements


def block_of(rank: int, count: int, slots: int) -> range:
    """Return the slots of a round that a member computes."""
    return range(rank * slots // count, (rank + 1) * slots // count)


def nodes_of(block: range, slots: int) -> list[range]:
    """Return the largest nodes of the tree over so many slots that lie inside a block of them."""
    width = 1 << max(0, slots - 1).bit_length()
    stop = (
        width if block.stop == slots else block.stop
    )  # behind the last slot there is nothing that could be missed
    return _nodes_inside(range(block.start, stop), range(width)) if block else []


def _nodes_inside(block: range, node: range) -> list[range]:
    if node.start >= block.stop or node.stop <= block.start:
        return []
    if block.start <= node.start and node.stop <= block.stop:
        return [node]
    half = len(node) // 2
    return [*_nodes_inside(block, node[:half]), *_nodes_inside(block, node[half:])]


def buckets_of(size: int, rank: int, count: int, bucket: int) -> list[slice]:
    """Return the slices of a vector that its owner adds up one by one: at least one, perhaps empty."""
    lo, hi = slice_bounds(size, rank, count)
    return [slice(begin, min(begin + bucket, hi)) for begin in range(lo, max(hi, lo + 1), bucket)]

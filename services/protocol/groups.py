"""How the members of an all-reduce group share the slots of a step and the elements of a vector.

A *node* of the tree over slots is a range of them; what is added up in it may stand at its first slot
(`dense_numpy.tree_mean`).  What members say to each other is in `messages.py`.
"""

from edlz.services.protocol.layout import ALIGNMENT, slice_bounds
from edlz.services.protocol.messages import NO_IDENTITY, Identity, SnapshotName

__all__ = ["BASE", "LINK_WAIT_S", "DurableState", "block_of", "buckets_of", "nodes_of", "number_of"]

BASE: SnapshotName = (NO_IDENTITY, 0)  # the name of the state before training
DurableState = tuple[SnapshotName, bool]  # a state that lies on the disk, whole; whether as a checkpoint

LINK_WAIT_S = 8.0  # without a byte of what is due: the link between two members may be broken


def number_of(generation: Identity) -> int:
    """Return the number that files of states of a generation have: greater than those of earlier ones."""
    return (generation[0] << 20) + generation[1]


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
    """Return the slices of a vector that its owner adds up one by one: at least one, perhaps empty.

    They are as few as possible of at most `bucket` elements, and near-equal: a small one costs as much to send as a large one.
    """
    lo, hi = slice_bounds(size, rank, count)
    fewest = max(1, -(-(hi - lo) // bucket))
    even = -(-(hi - lo) // fewest)
    step = min(bucket, max(1, -(-even // ALIGNMENT)) * ALIGNMENT)
    return [slice(begin, min(begin + step, hi)) for begin in range(lo, max(hi, lo + 1), step)]

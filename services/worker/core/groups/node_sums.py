"""The sums of a member's block of slots, added up as its slots are computed: of a long block few vectors are held.

Whoever computes them adds them up, where the vectors are: of a large model that takes a while.

Theory of operation.  A node of the tree is the sum of its halves; a slot without a vector is skipped.  Slots come in their
order, so what lies before the one that comes is all there, and two sums that meet in a node before it are added up.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edlz.core_ext.dense import tree_mean
from edlz.core_ext.memory import aligned_empty
from edlz.services.protocol.groups import nodes_of

__all__ = ["NO_SUMS", "NodeSums", "Sums"]

Vector = npt.NDArray[np.float32]


class Sums(NamedTuple):
    """What a block adds up to: the first slot of each of its nodes that has a sum, and the sums."""

    places: tuple[int, ...]
    dense: tuple[Vector, ...]
    state: tuple[Vector, ...]


NO_SUMS = Sums((), (), ())


@dataclass
class _Sum:
    """Of slots from `first` on, in the `node`-th of the block's nodes; without states if one of them has none."""

    node: int
    first: int
    dense: Vector
    state: Vector | None


class NodeSums:
    """The largest nodes of the tree over so many slots that lie in a block of them.

    Parameters
    ----------
    block : range
    slots : int
    """

    def __init__(self, block: range, slots: int) -> None:
        self._nodes = nodes_of(block, slots)
        self._sums: list[_Sum] = []  # not added up yet, in their order

    def add(self, slot: int, dense: Vector, state: Vector | None) -> None:
        """Take the vectors of a slot; nobody writes to them.  Slots are taken in their order."""
        self._add_up(slot)
        node = next(place for place, node in enumerate(self._nodes) if slot in node)
        self._sums.append(_Sum(node, slot, dense, state))

    def take(self) -> Sums:
        """Return the sums; nothing is kept."""
        self._add_up(None)
        sums, self._sums = self._sums, []
        places = tuple(self._nodes[each.node].start for each in sums)
        states = tuple(each.state for each in sums if each.state is not None)
        return Sums(places, tuple(each.dense for each in sums), states)

    def _add_up(self, slot: int | None) -> None:
        """Add up what no slot from this one on (None: no slot at all) comes between."""
        while len(self._sums) > 1:
            left, right = self._sums[-2:]
            height = (left.first ^ right.first).bit_length()  # of the node in which they meet
            is_open = slot is not None and slot >> height == right.first >> height
            if left.node != right.node or is_open:
                return
            del self._sums[-2:]
            dense = _added(left.dense, right.dense)
            state = None
            if left.state is not None and right.state is not None:
                state = _added(left.state, right.state)
            self._sums.append(_Sum(left.node, left.first, dense, state))


def _added(left: Vector, right: Vector) -> Vector:
    total: Vector = aligned_empty(len(left), np.float32)
    tree_mean(total, (left, right), (0, 1), 1.0)
    return total

"""What a member adds up of its block while its slots are computed: the bits of the tree, and few vectors held."""

import itertools
import weakref

import numpy as np
import pytest

from edlz.core_ext.dense import tree_mean
from edlz.services.protocol.groups import block_of, nodes_of
from edlz.services.worker.core.groups.node_sums import NodeSums, Vector


def vector(slot: int) -> Vector:
    """Return numbers whose sums depend on the order in which they are added up."""
    return np.random.default_rng(slot).normal(size=64).astype(np.float32) * np.float32(10.0**slot)


def tree_sum(slots: list[int]) -> Vector:
    total = np.empty(64, np.float32)
    tree_mean(total, [vector(slot) for slot in slots], slots, 1.0)
    return total


@pytest.mark.parametrize("slots", range(1, 8))
def test_sums_are_those_of_the_tree_whatever_is_absent(slots: int) -> None:
    for count, present in itertools.product((1, 2, 3), itertools.product((False, True), repeat=slots)):
        for rank in range(count):
            block = block_of(rank, count, slots)
            sums = NodeSums(block, slots)
            for slot in block:
                if present[slot]:
                    sums.add(slot, vector(slot), vector(slot)[:8])
            inside = [
                (node.start, [slot for slot in node if slot < slots and present[slot]])
                for node in nodes_of(block, slots)
            ]
            wanted = [(start, tree_sum(there)) for start, there in inside if there]
            places, dense, state = sums.take()
            assert places == tuple(start for start, _ in wanted)
            assert [each.tobytes() for each in dense] == [total.tobytes() for _, total in wanted]
            assert [each.tobytes() for each in state] == [total[:8].tobytes() for _, total in wanted]


def test_one_slot_without_states_leaves_its_node_without() -> None:
    sums = NodeSums(range(2), 2)
    sums.add(0, vector(0), vector(0))
    sums.add(1, vector(1), None)
    places, dense, state = sums.take()
    assert (places, len(dense), state) == ((0,), 1, ())


def test_of_a_long_block_few_vectors_are_held() -> None:
    sums, given = NodeSums(range(16), 16), []
    for slot in range(16):
        gradient = vector(slot)
        given.append(weakref.ref(gradient))
        sums.add(slot, gradient, None)
        del gradient
        assert sum(ref() is not None for ref in given) <= 2
        assert len(sums._sums) <= 5
    assert len(sums.take()[1]) == 1
    assert not any(ref() is not None for ref in given)

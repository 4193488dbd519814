"""Who has which slots and which elements: all of them, each once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.protocol.groups import block_of, buckets_of, nodes_of
from edlz.services.protocol.layout import slice_bounds


@given(st.integers(1, 40), st.integers(1, 40))
def test_blocks_have_each_slot_once(members: int, slots: int) -> None:
    blocks = [block_of(rank, members, slots) for rank in range(members)]
    assert [slot for block in blocks for slot in block] == list(range(slots))


@given(st.integers(1, 40), st.integers(1, 70))
def test_nodes_have_each_slot_once_and_are_few(members: int, slots: int) -> None:
    height = (slots - 1).bit_length()
    for rank in range(members):
        block = block_of(rank, members, slots)
        nodes = nodes_of(block, slots)
        assert [slot for node in nodes for slot in node if slot < slots] == list(block)
        for node in nodes:
            assert len(node) & (len(node) - 1) == 0, "a node is a power of two wide"
            assert node.start % len(node) == 0, "and begins at a multiple of that"
        assert len(nodes) <= max(1, 2 * height)


def test_an_aligned_block_is_one_node() -> None:
    assert [nodes_of(block_of(rank, 2, 4), 4) for rank in range(2)] == [[range(2)], [range(2, 4)]]
    assert nodes_of(range(5), 5) == [range(8)]


@given(st.integers(0, 3000), st.integers(1, 9), st.integers(1, 40).map(lambda blocks: 16 * blocks))
def test_buckets_have_each_element_once(size: int, members: int, bucket: int) -> None:
    counts = np.zeros(size, int)
    for rank in range(members):
        buckets = buckets_of(size, rank, members, bucket)
        assert buckets, "each owner has one, perhaps empty"
        assert (buckets[0].start, buckets[-1].stop) == slice_bounds(size, rank, members)
        for where in buckets:
            counts[where] += 1
            assert where.stop - where.start <= bucket
        sizes = [where.stop - where.start for where in buckets]
        assert len(sizes) <= max(1, -(-sum(sizes) // bucket)), "as few as possible"
        assert max(sizes) - min(sizes) <= 16 * len(sizes), "near-equal"
    assert (counts == 1).all()

"""Layouts and slices."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edlz.services.protocol.layout import ALIGNMENT, Variable, VectorLayout, slice_bounds

shapes = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), max_size=6)


@given(st.integers(0, 1000), st.integers(1, 9))
def test_slices_are_contiguous_aligned_and_near_equal(size: int, count: int) -> None:
    bounds = [slice_bounds(size, p, count) for p in range(count)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == size
    assert all(a[1] == b[0] for a, b in pairwise(bounds))
    assert all(lo % ALIGNMENT == 0 or lo == size for lo, _ in bounds)
    lengths = [hi - lo for lo, hi in bounds]
    assert max(lengths) - min(lengths) <= 2 * ALIGNMENT


@given(shapes, st.integers(1, 5), st.integers(1, 40))
def test_unpadded_slices_join_to_the_unpadded_vector(
    shapes: list[tuple[int, ...]], count: int, most: int
) -> None:
    layout = VectorLayout(variables=tuple(Variable(path=str(i), shape=s) for i, s in enumerate(shapes)))
    vector = np.full(layout.size, -1.0, np.float32)
    wanted = []
    for n, (variable, offset) in enumerate(zip(layout.variables, layout.offsets, strict=False)):
        assert offset % ALIGNMENT == 0
        vector[offset : offset + variable.size] = n
        wanted += [float(n)] * variable.size
    parts = []
    for p in range(count):
        lo, hi = slice_bounds(layout.size, p, count)
        first, total = 0, 1
        while first < total:
            elements, total = layout.unpadded(vector[lo:hi], lo, first, most)
            assert len(elements) == min(most, total - first)
            parts += elements.tolist()
            first += most
    assert parts == wanted
    assert layout.element_count == len(wanted)

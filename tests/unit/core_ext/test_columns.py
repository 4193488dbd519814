"""Arrow's columns of numbers as NumPy has them: the compiled view, its plain twin, and Arrow's own way."""

from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.core_ext import columns, columns_numpy

WHOLE = [pyarrow.int32(), pyarrow.int64()]
REAL = [pyarrow.float32(), pyarrow.float64()]
OTHERS = [pyarrow.int16(), pyarrow.uint64(), pyarrow.bool_(), pyarrow.string(), pyarrow.float16()]


@given(st.data())
def test_numbers_are_those_of_the_twin_and_of_arrow(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 300))
    masks = data.draw(st.lists(st.sampled_from(["none", "some", "all"]), min_size=4, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = [
        pyarrow.array(
            rng.integers(-9, 9, rows).astype(kind.to_pandas_dtype()),
            mask={"none": None, "some": rng.random(rows) < 0.3, "all": np.ones(rows, bool)}[mask],
        )
        for kind, mask in zip(WHOLE + REAL, masks, strict=True)
    ]
    first = data.draw(st.integers(0, rows))
    batch = pyarrow.record_batch(arrays, list("abcd")).slice(first, data.draw(st.integers(0, rows - first)))
    for array, ours, twin in zip(
        batch.columns, columns.numbers(batch), columns_numpy.numbers(batch), strict=True
    ):
        if array.null_count and array.type in WHOLE:
            assert ours is None
            assert twin is None
            continue
        for one in (ours, twin, columns.number(array), columns_numpy.number(array)):
            assert one is not None
            assert one.flags.aligned
            assert not (len(one) and one.flags.writeable)
            assert _bits(one) == _bits(array.to_numpy(zero_copy_only=False))


@pytest.mark.parametrize("module", [columns, columns_numpy])
def test_columns_of_other_types_are_left_to_others(module: Any) -> None:
    arrays = [pyarrow.array([1, 0]).cast(kind) for kind in OTHERS]
    arrays += [
        pyarrow.array([1, 2]).dictionary_encode(),
        pyarrow.array([[1.0], [2.0]], pyarrow.list_(pyarrow.float32(), 1)),
        pyarrow.nulls(2),
    ]
    batch = pyarrow.record_batch(arrays, [str(place) for place in range(len(arrays))])
    assert module.numbers(batch) == [None] * len(arrays)
    assert [module.number(array) for array in arrays] == [None] * len(arrays)


@pytest.mark.parametrize("module", [columns, columns_numpy])
def test_an_array_is_no_record_batch(module: Any) -> None:
    with pytest.raises(TypeError, match="no record batch"):
        module.numbers(pyarrow.array([1]))


def test_memory_stays_as_long_as_an_array_of_it() -> None:
    before = pyarrow.total_allocated_bytes()
    batch = pyarrow.record_batch([pyarrow.array(range(10_000))], ["a"])
    (kept,) = columns.numbers(batch)
    del batch
    assert kept is not None
    assert kept.tolist() == list(range(10_000))
    assert pyarrow.total_allocated_bytes() > before
    del kept
    assert pyarrow.total_allocated_bytes() == before


def _bits(array: Any) -> tuple[Any, bytes]:
    return array.dtype, array.tobytes()

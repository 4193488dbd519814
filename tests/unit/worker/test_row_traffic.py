"""Rows on their way to partitions and back: nothing is lost, whatever the numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.core_ext.ids import group_ids, partition_of
from edlz.services.errors import LocalProtocolError
from edlz.services.worker.partition_traffic import join_rows, row_ids, split_gradients

IDS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12)
DIMS = (1, 3)


@given(st.tuples(IDS, IDS), st.integers(1, 4))
def test_rows_come_back_in_the_order_of_the_ids(tables: tuple[list[int], list[int]], partitions: int) -> None:
    groups = [group_ids(np.array(ids, np.int64), partitions)[:2] for ids in tables]
    asked = row_ids(groups, partitions)
    answers = []
    for index, wanted in enumerate(asked):
        assert (partition_of(wanted.ids, partitions) == index).all()
        values = np.repeat(wanted.ids, np.repeat(DIMS, wanted.counts)).astype(np.float32)
        answers.append(values)
    joined = join_rows(asked, answers, DIMS)
    for (ids, _), block, dim in zip(groups, joined, DIMS, strict=True):
        np.testing.assert_array_equal(block, np.repeat(ids.astype(np.float32)[:, None], dim, axis=1))
    for part, answer in zip(split_gradients(asked, joined), answers, strict=True):
        np.testing.assert_array_equal(part, answer)


def test_a_model_without_tables_asks_for_nothing() -> None:
    (asked,) = row_ids([], 1)
    assert (asked.counts, asked.ids.shape) == ((), (0,))
    assert join_rows((asked,), (None,), ()) == ()


def test_an_answer_without_rows_is_no_answer() -> None:
    asked = row_ids([group_ids(np.arange(4), 1)[:2]], 1)
    with pytest.raises(LocalProtocolError, match="partition 0 answered without the rows"):
        join_rows(asked, (None,), (2,))

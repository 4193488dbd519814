"""What a member's replica is told of a slot: where its task ends."""

import numpy as np
import numpy.typing as npt
import pytest

from edlz.services.worker.block_computing import _told
from edlz.services.worker.core.computation import Computed
from edlz.services.worker.core.groups.instructions import Slot


def computed(index: int, gradient: npt.NDArray[np.float32] | None) -> Computed:
    """Return the last minibatch of task 2."""
    return Computed(
        task=2,
        index=index,
        is_last=True,
        gradient=gradient,
        state=None,
        counters=None,
        loss=None if gradient is None else 0.5,
        records=0 if gradient is None else 5,
        read_s=0.0,
        compute_s=0.0,
    )


@pytest.mark.parametrize(
    ("end_at", "is_last"),
    [
        (None, True),
        (9, True),  # the records end before the task was to
        (4, False),  # an empty minibatch ends it
    ],
)
def test_a_task_ends_with_its_records_or_where_the_master_has_ended_it(
    end_at: int | None, is_last: bool
) -> None:
    last = computed(3, np.zeros(4, np.float32))
    told = _told(7, Slot(slot=1, task=2, index=3, end_at=end_at), last)
    assert (told.header.is_last, told.header.is_empty) == (is_last, False)


def test_what_is_empty_ends_its_task() -> None:
    told = _told(7, Slot(slot=1, task=2, index=4, end_at=4), computed(4, None))
    assert (told.header.is_last, told.header.is_empty) == (True, True)

"""States follow one another by a table, or not at all."""

from enum import Enum

import pytest

from edlz.k8s.pods.pod_inventory import STEPS as POD_STEPS
from edlz.services.errors import LocalProtocolError
from edlz.services.ps.core.checkpointing import STEPS as CUT_STEPS
from edlz.services.ps.core.standing import STEPS as PARTITION_STEPS
from edlz.services.transitions import Transitions
from edlz.services.worker.core.held_tasks import STEPS as TASK_STEPS


class Door(Enum):
    OPEN = "open"
    SHUT = "shut"
    WALLED_UP = "walled up"


STEPS = Transitions(
    "a door", Door.OPEN, {Door.OPEN: {Door.SHUT}, Door.SHUT: {Door.OPEN, Door.WALLED_UP}, Door.WALLED_UP: ()}
)


def test_a_step_of_the_table_may_be_taken() -> None:
    STEPS.check(Door.OPEN, Door.SHUT)


@pytest.mark.parametrize("following", [Door.OPEN, Door.WALLED_UP])
def test_another_step_raises(following: Door) -> None:
    with pytest.raises(LocalProtocolError, match=f"a door that was open cannot be {following.value}"):
        STEPS.check(Door.OPEN, following)


def test_a_table_names_every_state() -> None:
    with pytest.raises(AssertionError, match="nobody says what follows"):
        Transitions("a door", Door.OPEN, {Door.OPEN: {Door.SHUT}, Door.SHUT: ()})


@pytest.mark.parametrize(
    "steps", [TASK_STEPS, PARTITION_STEPS, CUT_STEPS, POD_STEPS], ids=lambda steps: steps.what
)
def test_every_state_can_be_reached(steps: Transitions) -> None:
    reached, new = {steps.first}, {steps.first}
    while new:
        new = {after for state in new for after in steps.after[state]} - reached
        reached |= new
    assert reached == set(steps.after)

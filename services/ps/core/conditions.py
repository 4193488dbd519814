"""Where a partition stands, and what may follow."""

from enum import Enum

from edlz.services.transitions import Transitions

__all__ = ["STEPS", "Condition"]


class Condition(Enum):
    """Where a partition stands; derived from its state, never stored."""

    JOINING = "joining"  # the master has not named it
    BARE = "bare"  # it has no state
    UNRESTORED = "unrestored"  # sync: it has one, and the master has not said which era it is of
    SERVING = "serving"
    SEALED = "sealed"  # it has every minibatch, and has said so on disk


# A state that is found damaged when an era is to begin with it is lost; then an older one takes its place, or none.
STEPS = Transitions(
    "a partition",
    Condition.JOINING,
    {
        Condition.JOINING: {Condition.BARE, Condition.UNRESTORED, Condition.SERVING},
        Condition.BARE: {Condition.UNRESTORED, Condition.SERVING},
        Condition.UNRESTORED: {Condition.SERVING, Condition.BARE},
        Condition.SERVING: {Condition.SEALED, Condition.UNRESTORED, Condition.BARE},
        Condition.SEALED: {Condition.SERVING, Condition.UNRESTORED, Condition.BARE},
    },
)

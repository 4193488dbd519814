"""Where a member's replica stands, and what may follow."""

from enum import Enum

from edlz.services.transitions import Transitions

__all__ = ["IN_STEP", "OF_MEMBERS", "STEPS", "Phase"]


class Phase(Enum):
    """Where a replica stands; the values are those of `MemberPhase`."""

    STARTING = "starting"  # the model is not built
    WAITING = "waiting"  # ready, in no group
    PROMISED = "promised"  # commits nothing of a lower generation; the group is not known
    FETCHING = "fetching"  # takes the state over
    COMPUTING = "computing"
    STAGED = "staged"  # has sent its parts, waits for means
    ADVANCING = "advancing"  # has all means, works out the values of the next version
    HELD = "held"  # at a version that is evaluated before the next step
    BARRED = "barred"  # at a barrier: what follows is not decided yet, or not known yet
    FAILED = "failed"  # the user's code raised
    SEALING = "sealing"  # no task is open: writes its part of the last state
    SEALED = "sealed"


_FIRST = {Phase.COMPUTING, Phase.HELD, Phase.BARRED, Phase.SEALING}  # of a member, and after each step
IN_STEP = frozenset({Phase.COMPUTING, Phase.STAGED, Phase.ADVANCING})
OF_MEMBERS = frozenset({*_FIRST, Phase.STAGED, Phase.ADVANCING, Phase.FAILED, Phase.SEALED})
STEPS = Transitions(
    "a replica",
    Phase.STARTING,
    {
        Phase.STARTING: {Phase.WAITING},
        Phase.WAITING: {Phase.PROMISED},
        Phase.PROMISED: {Phase.PROMISED, Phase.FETCHING, *_FIRST},
        Phase.FETCHING: {Phase.PROMISED, *_FIRST},
        Phase.COMPUTING: {Phase.PROMISED, Phase.STAGED, Phase.FAILED},
        Phase.STAGED: {Phase.PROMISED, Phase.ADVANCING, Phase.SEALING},
        Phase.ADVANCING: {Phase.PROMISED, *_FIRST},
        Phase.HELD: {Phase.PROMISED, *_FIRST},
        Phase.BARRED: {Phase.PROMISED, *_FIRST},
        Phase.FAILED: {Phase.PROMISED, *_FIRST},
        Phase.SEALING: {Phase.PROMISED, Phase.SEALED},
        Phase.SEALED: {Phase.PROMISED},
    },
)

"""How far a job is, and which phase may follow which."""

from enum import Enum

from edlz.services.transitions import Transitions

__all__ = ["STEPS", "Phase"]


class Phase(Enum):
    """How far the job is."""

    GATHERING = "gathering"  # some partition has not been heard of
    RESTORING = "restoring"  # they do not stand together, or have no values
    RUNNING = "running"
    SEALING = "sealing"  # every task is done
    CONCLUDING = "concluding"  # and sealed: the last evaluation, the last checkpoint, the digest
    EXPORTING = "exporting"
    STOPPING = "stopping"  # somebody wants it to end
    COMPLETE = "complete"
    FAILED = "failed"
    STOPPED = "stopped"


# One event may take the job on by several phases.  A loss takes it back; nothing takes it back from its end.
_GOES_ON = {
    Phase.GATHERING: {Phase.RESTORING, Phase.RUNNING, Phase.SEALING, Phase.CONCLUDING},
    Phase.RESTORING: {Phase.RUNNING, Phase.SEALING, Phase.CONCLUDING},
    Phase.RUNNING: {Phase.RESTORING, Phase.SEALING, Phase.CONCLUDING},
    Phase.SEALING: {Phase.RESTORING, Phase.RUNNING, Phase.CONCLUDING},
    Phase.CONCLUDING: {Phase.RUNNING, Phase.EXPORTING, Phase.COMPLETE},
    Phase.EXPORTING: {Phase.RUNNING, Phase.CONCLUDING, Phase.COMPLETE},
}
_ENDS = (Phase.COMPLETE, Phase.FAILED, Phase.STOPPED)
STEPS = Transitions(
    "a job",
    Phase.GATHERING,
    {phase: after | {Phase.STOPPING, Phase.FAILED} for phase, after in _GOES_ON.items()}
    | {Phase.STOPPING: {Phase.COMPLETE, Phase.FAILED, Phase.STOPPED}}
    | {end: set() for end in _ENDS},
)

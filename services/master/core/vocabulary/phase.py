"""How far a job is, and which phase may follow which."""

from enum import Enum

from edlz.services.errors import LocalProtocolError

__all__ = ["STEPS", "Phase", "check_step"]


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
STEPS: dict[Phase, frozenset[Phase]] = {
    Phase.GATHERING: frozenset({Phase.RESTORING, Phase.RUNNING, Phase.SEALING, Phase.CONCLUDING}),
    Phase.RESTORING: frozenset({Phase.RUNNING, Phase.SEALING, Phase.CONCLUDING}),
    Phase.RUNNING: frozenset({Phase.RESTORING, Phase.SEALING, Phase.CONCLUDING}),
    Phase.SEALING: frozenset({Phase.RESTORING, Phase.RUNNING, Phase.CONCLUDING}),
    Phase.CONCLUDING: frozenset({Phase.RUNNING, Phase.EXPORTING, Phase.COMPLETE}),
    Phase.EXPORTING: frozenset({Phase.RUNNING, Phase.CONCLUDING, Phase.COMPLETE}),
    Phase.STOPPING: frozenset({Phase.COMPLETE, Phase.STOPPED}),
}
STEPS |= {phase: after | {Phase.STOPPING, Phase.FAILED} for phase, after in STEPS.items()}
STEPS |= {phase: frozenset() for phase in (Phase.COMPLETE, Phase.FAILED, Phase.STOPPED)}


def check_step(phase: Phase, following: Phase) -> None:
    """Check that one phase, or itself, may follow another.

    Raises
    ------
    LocalProtocolError
        If it may not.
    """
    if following is not phase and following not in STEPS[phase]:
        raise LocalProtocolError(f"a job that was {phase.value} cannot be {following.value}")

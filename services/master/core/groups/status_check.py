"""What the master refuses of a member's status: what no member of its job can say."""

from edlz.services.errors import RemoteProtocolError
from edlz.services.protocol.ledger import TaskSet
from edlz.services.protocol.messages import Identity, MemberStatus
from edlz.services.protocol.plan import Plan

__all__ = ["check_status", "check_written"]


def check_status(status: MemberStatus, plan: Plan, newest: Identity) -> None:
    """Look at a status before it is believed.

    Parameters
    ----------
    newest : Identity
        The greatest generation that any master of the job has named.

    Raises
    ------
    RemoteProtocolError
        If it is none of this job; nothing has changed.
    """
    try:
        TaskSet(status.finished)
    except ValueError as error:
        raise RemoteProtocolError(f"a member has no ledger: {error}") from error
    if status.finished and not (status.finished[0] >= 0 and status.finished[-1] <= plan.task_count):
        raise RemoteProtocolError(
            f"a member has finished tasks {status.finished}; the job has {plan.task_count}"
        )
    names = (status.name, status.source, status.agreed, *(part.name for part in status.written))
    if max(status.generation, *(name[0] for name in names)) > newest or min(name[1] for name in names) < 0:
        raise RemoteProtocolError(f"a member speaks of {names}; the newest generation is {newest}")
    failed = status.failed
    if failed is not None and not (0 <= failed.task < plan.task_count and failed.index >= 0):
        raise RemoteProtocolError(f"a member has failed at minibatch ({failed.task}, {failed.index})")
    if status.computing is not None and not 0 <= status.computing[0] < plan.task_count:
        raise RemoteProtocolError(f"a member computes minibatch {status.computing}")
    for part in status.written:
        if not 0 <= part.rank < part.count:
            raise RemoteProtocolError(f"a member has written part {part.rank} of {part.count}")


def check_written(status: MemberStatus) -> None:
    """Raise RemoteProtocolError if a member says no more of a part than that it has written it."""
    for part in status.written:
        info = part.info
        if not part.error and (info is None or (info.partition, info.partitions) != (part.rank, part.count)):
            raise RemoteProtocolError(f"a member has written part {part.rank} of {part.count} as {info}")

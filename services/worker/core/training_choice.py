"""Which kind of training a worker does, when its model is built: as a member of a group, or with parameter servers."""

from collections.abc import Callable

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.protocol.messages import Identity
from edlz.services.protocol.plan import Plan
from edlz.services.worker.core.asynchronous import AsynchronousTraining
from edlz.services.worker.core.inputs import ModelBuilt
from edlz.services.worker.core.instructions import Instruction
from edlz.services.worker.core.member import MemberTraining, own_replica, replica_of
from edlz.services.worker.core.partition_directory import PartitionDirectory
from edlz.services.worker.core.requests import Requests
from edlz.services.worker.core.synchronous import SynchronousTraining

__all__ = ["member_training", "training_with_servers"]

Tell = Callable[[float], list[Instruction]]


def member_training(
    built: ModelBuilt,
    plan: Plan,
    settings: JobSettings,
    incarnation: Identity,
    about: tuple[PartitionDirectory, Requests, Tell],
) -> MemberTraining:
    """Return the training of a member; the one partition that it knows from then on is its own replica.

    Parameters
    ----------
    about : PartitionDirectory, Requests, callable
        As for `Training`.
    """
    partitions, requests, tell = about
    replica = replica_of(incarnation, plan, settings, built.callbacks, sees_job_dir=built.sees_job_dir)
    partitions.be_own(own_replica(incarnation))
    return MemberTraining(plan, partitions, requests, tell, replica)


def training_with_servers(
    built: ModelBuilt, plan: Plan, settings: JobSettings, about: tuple[PartitionDirectory, Requests, Tell]
) -> SynchronousTraining | AsynchronousTraining:
    """Return the training of a job with parameter servers; the parameters are those of `member_training`."""
    partitions, requests, tell = about
    if plan.is_sync:
        return SynchronousTraining(plan, partitions, requests, built.has_tables, tell)
    # Not with a version tolerance: rows that are one version older would be sent back.
    looks_ahead = settings.prefetch_rows and not settings.sync_version_tolerance
    return AsynchronousTraining(plan, partitions, requests, built.has_tables, tell, looks_ahead=looks_ahead)

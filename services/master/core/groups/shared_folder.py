"""What is told of members that share no folder: what they would go on from, if all of them were lost, nobody finds."""

from edlz.services.configuration.job_settings import JobSettings
from edlz.services.master.core.groups.evictions import host_of
from edlz.services.protocol.messages import Member

__all__ = ["private_text", "unseen_text"]


def private_text(settings: JobSettings) -> str:
    """Return the warning of a job that was told, or has found out, that no two of its processes see its folder."""
    return (
        f"the workers share no folder, so nothing is kept to go on from: if all of them are lost, {_then(settings)};"
        " a --job_dir that all of them see (in pods: on a --volume) prevents that."
    )


def unseen_text(member: Member, settings: JobSettings) -> str:
    """Return the warning of a job one of whose members does not see the master's folder."""
    host = host_of(member)
    return (
        f"worker-{member.worker}{f' at {host}' if host else ''} does not see the master's folder of the job, so nothing is kept"
        f" to go on from: if all workers are lost, {_then(settings)}; give the master a --job_dir that all of them see under the"
        " same path, or --private_job_dir if there is none."
    )


def _then(settings: JobSettings) -> str:
    has_checkpoints = settings.checkpoint_dir and settings.checkpoint_steps
    return "training goes back to its newest checkpoint" if has_checkpoints else "training begins anew"

"""A new job whose name is that of one that can be resumed: it is not moved aside by the way.

Apart from `beginning`, which imports what runs a job: mistakes in flags are told without that.
"""

from edlz.client.job_files.job_index import LocalJob, is_job
from edlz.client.local.job_view import LocalJobView, look_at
from edlz.client.screen.wording import how_far
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import Problem

__all__ = ["taken_name"]


def taken_name(config: JobConfig) -> list[Problem]:
    """Return what is wrong with a new job's name, if anything; one that runs is told of when its folder is taken.

    A job that has ended is moved aside, and so is one that was stopped before its first step.
    """
    path = config.job_directory.absolute()
    if config.fresh or not is_job(path):
        return []
    word = str(path) if config.job_dir else config.job_name
    [view] = look_at([LocalJob(config.job_name, path, word)])
    if view.is_live or not _has_come_far(view):
        return []
    state = f"{view.status.state}{f', {view.note}' if view.note else ''}"
    status = view.status
    where = f" at {how_far(status.share, status.records)}" if view.has_figures else ""
    problem = Problem(
        f'job "{config.job_name}" exists: {state}{where}',
        f"edlz resume {word}; or begin anew: --fresh (its files are moved aside)",
    )
    return [problem]


def _has_come_far(view: LocalJobView) -> bool:
    """Whether there may be something to go on with: of a job that was killed nobody has said how far it was."""
    return view.status.state == "Stopped" and (view.status.version > 0 or not view.has_figures)

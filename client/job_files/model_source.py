"""What a trained model is read from: a checkpoint or a job's end, and the settings that build the model again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edlz.client.job_files.job_index import JOURNAL, LocalJob, NoSuchJob, find_job, list_jobs
from edlz.client.job_files.preflight import check_job
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.job_config import JobConfig, Scalar
from edlz.services.configuration.nearest import did_you_mean, nearest
from edlz.services.configuration.problems import InvalidConfigError, Problem
from edlz.services.errors import DataError
from edlz.services.master.journal.journal import planned_job
from edlz.services.master.journal.journal_facts import job_end
from edlz.services.master.planning import make_plan
from edlz.services.protocol.messages import Job
from edlz.services.protocol.plan import Plan
from edlz.services.storage.checkpoint_records import part_head, read_manifest, version_folder, version_of
from edlz.services.storage.sealed import sealed_parts
from edlz.services.storage.versions import NoCheckpoint, list_versions, newest_good
from edlz.services.storage.whole_cut import WholeCut

__all__ = ["ModelSource", "model_source"]

_NOT_NEEDED = ("validation_data", "prediction_data", "checkpoint_dir_for_init")
_SAME_RECORDS = "--training_data=PATH with records of the same form: a few are enough"


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A trained model, not read yet.

    Attributes
    ----------
    job, run : str
        Which job has trained it.
    where : Path
        The checkpoint's folder, or the job's.
    heads : tuple of Path
        Of its parts.
    config, plan : JobConfig, Plan
        What builds the model; the plan's data is some that its feed takes.
    """

    job: str
    run: str
    where: Path
    heads: tuple[Path, ...]
    config: JobConfig
    plan: Plan

    def open(self) -> WholeCut:
        """Open the parts.

        Raises
        ------
        DataError
            If they are damaged.
        """
        try:
            if version_of(self.where) is not None:
                return WholeCut.of_checkpoint(self.where)
            return WholeCut(self.heads)
        except OSError as e:
            raise DataError(f"{self.where} cannot be read: {e.strerror or e}") from e


def model_source(target: str, given: Mapping[str, str] | None = None) -> ModelSource:
    """Return the model that a checkpoint or a local job has.

    Parameters
    ----------
    target : str
        A version's folder, a folder of checkpoints (its newest good one), or a job's name or folder (what it
        ended with, else its newest checkpoint).
    given : mapping of flags to values
        In place of those that the checkpoint or the job keeps; `config` in place of all of them.

    Raises
    ------
    NoCheckpoint
        If there is neither, or none that is good.
    InvalidConfigError
        If model or data are not to be found.
    """
    job = _job(target)
    if job is not None:
        return _of_job(job, given or {})
    folder = newest_good(Path(target))
    manifest = read_manifest(folder)
    heads = tuple(part_head(folder, i, manifest.partitions) for i in range(manifest.partitions))
    return _source(manifest.job, manifest.run, folder, heads, manifest.settings, given or {})


def _job(target: str) -> LocalJob | None:
    """Return the local job that is meant; None if a checkpoint is.

    Raises
    ------
    NoCheckpoint
        If there is nothing of that name.
    """
    path = Path(target)
    if path.is_dir() and (version_of(path.resolve()) is not None or list_versions(path)):
        return None
    try:
        return find_job(target)
    except NoSuchJob as e:
        if path.exists():
            return None  # the error says what is wrong with it
        near = did_you_mean(nearest(target, [job.name for job in list_jobs()]))
        raise NoCheckpoint(
            f'"{target}" is neither a checkpoint folder nor a local job',
            near or "a job of a cluster: name the folder of its checkpoints",
        ) from e


def _of_job(job: LocalJob, given: Mapping[str, str]) -> ModelSource:
    planned = planned_job(job.path / JOURNAL)
    if planned is None:
        raise NoCheckpoint(f'job "{job.name}" has not begun: it has no model', f"edlz status {job.word}")
    task_count, result = job_end(job.path / JOURNAL)
    heads = sealed_parts(job.path, planned, task_count)
    checkpoints = JobConfig.from_record(planned.config).checkpoint_directory
    if result >= 0:  # callbacks have put back its weights
        return _of_version(planned, newest_good(version_folder(checkpoints, result)), given)
    if heads:
        return _source(planned.name, planned.run, job.path, heads, planned.config, given, planned.plan)
    if not list_versions(checkpoints):
        raise NoCheckpoint(
            f'job "{job.name}" is not at its end, and has no checkpoint',
            f"edlz stop {job.word} saves one; so does --checkpoint_steps=N",
        )
    return _of_version(planned, newest_good(checkpoints, planned.plan.hash), given)


def _of_version(planned: Job, folder: Path, given: Mapping[str, str]) -> ModelSource:
    manifest = read_manifest(folder)
    heads = tuple(part_head(folder, i, manifest.partitions) for i in range(manifest.partitions))
    return _source(planned.name, manifest.run, folder, heads, planned.config, given, planned.plan)


def _source(
    job: str,
    run: str,
    where: Path,
    heads: tuple[Path, ...],
    kept: Mapping[str, Scalar],
    given: Mapping[str, str],
    planned: Plan | None = None,
) -> ModelSource:
    config = _config(where, kept, given)
    # What lies now where data comes may be anything: the job knows what it began with.
    is_kept = planned is not None and planned.grows and given.keys().isdisjoint(("config", "training_data"))
    plan = planned if planned is not None and is_kept else make_plan(config)
    return ModelSource(job=job, run=run, where=where, heads=heads, config=config, plan=plan)


def _config(where: Path, kept: Mapping[str, Scalar], given: Mapping[str, str]) -> JobConfig:
    """Return the settings that build the model.

    Raises
    ------
    InvalidConfigError
        With all that is wrong with them.
    """
    argv = [] if "config" in given else _kept_arguments(kept, given)
    argv += [f"--{name}={value}" for name, value in given.items()]
    reading = read_config(argv, "train", {}, begins_job=False)
    config = reading.config
    if not (config.model_def or config.model_file):
        what = f"{where} does not say which model it is of: it was written by an older edlz"
        help_line = "--config=job.yaml of its job, or --model_def=NAME --training_data=PATH"
        raise InvalidConfigError([Problem(what, help_line)])
    errors: Sequence[Problem] = reading.errors or check_job(config, begins=False).errors
    if errors:
        raise InvalidConfigError([_with_help(problem, config, given) for problem in errors])
    return config


def _kept_arguments(kept: Mapping[str, Scalar], given: Mapping[str, str]) -> list[str]:
    whole = JobConfig.from_record(kept).model_settings()
    if not whole["training_data"]:
        whole["training_data"] = whole["validation_data"]  # of a job that only evaluates
    replaced = {"model_def", "model_file"} if {"model_def", "model_file"} & set(given) else set()
    settings = {
        name: value
        for name, value in whole.items()
        if name not in replaced and name not in _NOT_NEEDED and name not in given
    }
    return JobConfig.from_record(settings).to_arguments("train")


def _with_help(problem: Problem, config: JobConfig, given: Mapping[str, str]) -> Problem:
    """Say what to do if what the job began with is not here any more."""
    if problem.message.startswith("training_data") and "training_data" not in given:
        return Problem(problem.message, _SAME_RECORDS)
    if not problem.help and "model" in problem.message:
        return Problem(problem.message, "--model_zoo=DIR or --model_file=FILE says where it is now")
    return problem

"""From the flags to the job: list the data once, fix the plan, and find out whether to go on with an old one."""

import dataclasses
import fcntl
import logging
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from edlz.services.configuration.flags import DATA_FLAGS
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.job_size import MOST_TASKS
from edlz.services.configuration.origins import origins_after
from edlz.services.errors import ConfigError, DataError, LaunchError
from edlz.services.inputs.job_data import list_job_data
from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.master.core.vocabulary.records import FleetRecord, JournalState
from edlz.services.master.journal.journal import Journal
from edlz.services.predictions.formats import check_format
from edlz.services.predictions.kinds import STATISTICS
from edlz.services.predictions.output import claim
from edlz.services.protocol.messages import Job
from edlz.services.protocol.plan import Plan
from edlz.services.statistics.kept import pack
from edlz.services.storage.checkpoint_records import read_manifest, version_folder
from edlz.services.storage.checkpoint_writing import next_run_number
from edlz.services.storage.durable import make_folder
from edlz.services.storage.versions import look_at, newest_good

__all__ = ["desired_processes", "lock_folder", "make_plan", "open_journal", "with_origins_of"]

# Flags that say how this process runs, not what is trained: a restarted master may have others.
_OF_THIS_PROCESS = frozenset(
    {
        "config",
        "endpoint",
        "fresh",
        "host",
        "job_dir",
        "keys_dir",
        "launch_id",
        "leave_secs",
        "patience_secs",
        "log_format",
        "log_level",
        "master_addr",
        "metrics_host",
        "origins",
        "orphan_secs",
        "port",
        "progress",
        "ps_id",
        "resume",
        "status_host",
        "status_port",
        "tensorboard_log_dir",
        "transport_security",
        "watch_secs",
        "worker_id",
    }
)
JOURNAL = "journal.sqlite"

logger = logging.getLogger(__name__)


def with_origins_of(config: JobConfig, job: Job) -> JobConfig:
    """Return the settings with the origins that they had when the job began, where they are still the same."""
    return dataclasses.replace(config, origins=origins_after(config, JobConfig.from_record(job.config)))


def desired_processes(config: JobConfig, record: FleetRecord | None) -> DesiredProcesses:
    """Return the processes that the job wants, as far as an earlier master left them."""
    return DesiredProcesses(
        config.num_workers,
        config.num_ps_pods,
        spares=config.warm_spares,
        least=config.min_workers,
        most=config.max_workers or None,
        relaunches=config.relaunch_on_worker_failure,
        record=record,
    )


def make_plan(config: JobConfig) -> Plan:
    """List the data and fix the plan: of a job that only evaluates or predicts, it has no tasks to train on.

    Raises
    ------
    DataError, ConfigError
        If the data is missing, empty or not readable.
    """
    is_training = config.purpose == "training"
    flag = DATA_FLAGS["evaluation" if is_training else config.purpose]
    others = str(getattr(config, flag))
    training = list_job_data(config, config.training_data, DATA_FLAGS["training"]) if is_training else None
    evaluation = list_job_data(config, others, flag, training) if others else None
    plan = Plan(
        mode="sync" if config.is_sync else "async",
        seed=config.seed,
        shards=training.shards if training else (),
        records_per_task=config.records_per_task,
        minibatch_size=config.minibatch_size,
        epochs=config.num_epochs if is_training and not config.watch_data else 0,
        slots=1 if config.use_async else config.grads_to_wait,
        evaluation_shards=evaluation.shards if evaluation else (),
        predicts=config.purpose == "prediction",
        analyzes=config.purpose == "analysis",
        statistics=pack(Path(config.statistics)) if config.statistics else (),
        source=training.source if training else None,
        evaluation_source=evaluation.source if evaluation else None,
        stream=secrets.token_hex(8) if is_training and config.watch_data else "",
    )
    if not plan.is_endless and plan.task_count > MOST_TASKS:
        raise ConfigError(
            f"num_epochs={config.num_epochs} of {plan.tasks_per_epoch:,} tasks are {plan.task_count:,} tasks,"
            f" more than the {MOST_TASKS:,} that a job may have",
            f"fewer epochs, or a greater --{config.task_size_flag}",
        )
    return plan


def lock_folder(folder: Path, job_name: str, holder: str = "") -> IO[str]:
    """Make the job's folder and keep any other master out of it; the lock goes with the process.

    Parameters
    ----------
    holder : who locks it, if there can be only one of that name at a time (a pod): an earlier one that still has the
        lock is cut off on a machine that is lost, and its term is over as soon as the journal has the next one

    Raises
    ------
    ConfigError
        If the folder cannot be written.
    LaunchError
        If another master works in it.
    """
    path = folder / "master.lock"
    try:
        make_folder(folder)
        lock = path.open("a+")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot use {folder}: {reason}", "set --job_dir to a writable folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        pid, _, other = lock.read().strip().partition("\n")
        lock.close()
        if holder and other == holder:
            logger.warning("the earlier %s is cut off, and has left its lock in %s", holder, folder)
            return _new_lock(path, holder)
        raise LaunchError(
            f'job "{job_name}" is being run by another master (pid {pid or "unknown"}) in {folder}',
            "choose another --job_name, or wait for it to end",
        ) from None
    _sign(lock, holder)
    return lock


def _new_lock(path: Path, holder: str) -> IO[str]:
    """Put another lock in the place of one that will not be let go."""
    new = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    lock = new.open("a+")
    fcntl.flock(lock, fcntl.LOCK_EX)
    _sign(lock, holder)
    new.replace(path)
    return lock


def _sign(lock: IO[str], holder: str) -> None:
    """Write into a lock who has it."""
    with suppress(OSError):  # on a full disk: it is held all the same
        os.ftruncate(lock.fileno(), 0)
        os.write(lock.fileno(), f"{os.getpid()}\n{holder}".strip().encode())


def open_journal(config: JobConfig, folder: Path) -> tuple[Journal, Job]:
    """Open the job's journal: of an interrupted run with the same settings, or a new one.

    A job that is complete needs nothing any more, but to be said so to whoever has not heard it.  So its journal
    is opened as it is by a master that was started again, or to resume it; it gives way to a new run only if
    another start of the job wants one.  An older journal is kept beside it under its run's name.

    Raises
    ------
    ConfigError
        If there is nothing to resume, or what there is cannot go on under this configuration.
    DataError
        If the data cannot be listed.
    """
    path = folder / JOURNAL
    if config.resume and not path.exists():
        raise ConfigError(f"there is no journal at {path}: the job has not begun", "start it: edlz train …")
    journal, number = Journal(path), 1
    try:
        job = journal.job()
        if config.resume and job is None:
            raise ConfigError(f"{path} holds no plan: the job has not begun", "start it: edlz train …")
        if job is not None and (config.resume or _is_same_run(config, job, journal.state())):
            return journal, _gone_on(config, journal, job)
        if job is not None:
            journal.close()
            _set_aside(folder, job)
            journal, number = Journal(path), job.run_number + 1
        job = _planned(config, number)
        journal.begin(job, config.launch_id, time.time())
    except BaseException:
        journal.close()
        raise
    return journal, job


def _is_same_run(config: JobConfig, job: Job, state: JournalState) -> bool:
    """Whether a journal is of the run that this master is to lead; one that begins anew leads what its own launch began."""
    is_same_launch = bool(config.launch_id) and config.launch_id == state.launch
    if config.fresh and not is_same_launch:
        return False
    if _essence(job.config) != _essence(config.to_record()):
        return False
    if not state.is_complete:
        return True
    return is_same_launch if config.launch_id else not state.has_ended


def _gone_on(config: JobConfig, journal: Journal, job: Job) -> Job:
    """Return the job of a journal as this master goes on with it, durably."""
    state = journal.state()
    if state.is_complete:
        logger.info("job=%s is complete: nothing is left to do", job.name)
        return job
    if config.resume:
        changed = _resumed(config, job, state)
        logger.info("job=%s goes on with %d partitions", job.name, changed.partitions)
    else:
        changed = _numbered(config, job, job.run_number)
        logger.info("job=%s goes on where its journal stands; the data is not listed again", job.name)
    fleet, refusal = state.fleet, state.refusal
    # If somebody has started it anew, all is tried again.
    if not config.launch_id or state.launch != config.launch_id:
        fleet = fleet and dataclasses.replace(fleet, vain=(), given_up=())
        refusal = None
    journal.change_job(changed, state.term, config.launch_id, fleet, refusal)
    _claim_output(config, changed, is_new=False)
    return changed


def _claim_output(config: JobConfig, job: Job, *, is_new: bool) -> None:
    """Make the folder of the predictions, or statistics, this run's own, if the job writes any."""
    if job.plan.predicts and config.prediction_output:
        claim(Path(config.prediction_output), job.name, job.run, is_new=is_new)
    if job.plan.analyzes:
        claim(Path(config.statistics_output), job.name, job.run, is_new=is_new, kind=STATISTICS)


def _set_aside(folder: Path, job: Job) -> None:
    for suffix in ("", "-wal", "-shm"):
        old = folder / f"{JOURNAL}{suffix}"
        if old.exists():
            old.rename(folder / f"journal-{job.run}.sqlite{suffix}")
    logger.info("the journal of an earlier run is kept as journal-%s.sqlite", job.run)


def _planned(config: JobConfig, number: int) -> Job:
    """Plan a new job; `number`: the least that its run may have."""
    plan = make_plan(config)
    if plan.predicts and config.prediction_output:
        check_format(config.prediction_format)
    job = Job(
        name=config.job_name,
        run=secrets.token_hex(4),
        config=config.to_record(),
        plan=plan,
        partitions=max(1, config.num_ps_pods),
        begins_from=_first_checkpoint(config, plan),
    )
    _claim_output(config, job, is_new=True)
    return _numbered(config, job, number)


def _first_checkpoint(config: JobConfig, plan: Plan) -> str:
    """Return the version folder that a new job begins from, or nothing."""
    if not config.checkpoint_dir_for_init:
        return ""
    found = newest_good(Path(config.checkpoint_dir_for_init))
    logger.info("the job begins from the checkpoint %s", found)
    if plan.is_training and read_manifest(found).plan_hash != plan.hash:
        logger.warning("its plan is another one: parameters are taken, what it has trained on is not")
    return str(found.absolute())


def _resumed(config: JobConfig, job: Job, state: JournalState) -> Job:
    """Return a job that was stopped, with other settings as far as its plan allows.

    An orderly stop has saved a checkpoint: the job goes on from it, as a new run of the same plan.  After
    any other end each partition finds its own newest snapshot, unless there are others than before: then
    the state is cut anew from the newest good checkpoint.
    """
    _refuse_left_behind(config, job, state)
    partitions, before = max(1, config.num_ps_pods), JobConfig.from_record(job.config)
    changed = msgspec.structs.replace(job, config=with_origins_of(config, job).to_record())
    begins_from = _saved(config, job, state.saved)
    is_moved = partitions != job.partitions or config.is_allreduce != before.is_allreduce
    if is_moved and not begins_from:
        is_training = job.plan.is_training
        begins_from = _cut_for(config, job, partitions) if is_training else job.begins_from
    least = job.run_number
    if begins_from:
        run, least = secrets.token_hex(4), least + 1
        changed = msgspec.structs.replace(changed, run=run, partitions=partitions, begins_from=begins_from)
    return _numbered(config, changed, least)


def _numbered(config: JobConfig, job: Job, least: int) -> Job:
    """Return the job with a number of its run above those of all other runs that have saved checkpoints there.

    Also a run that goes on gets another one, if another run has used its folder meanwhile: what it saves
    from now on is the newest.
    """
    try:
        number = next_run_number(config.checkpoint_directory, job.run, least)
    except OSError as error:
        logger.warning("%s cannot be read: %s", config.checkpoint_directory, error.strerror or error)
        number = least
    return msgspec.structs.replace(job, run_number=number)


def _saved(config: JobConfig, job: Job, version: int) -> str:
    """Return the folder of the checkpoint that an orderly stop has taken, if it is still good."""
    if version < 0:
        return ""
    for place in _checkpoint_places(config, job):
        folder = version_folder(place, version)
        try:
            if folder.is_dir() and read_manifest(folder).plan_hash == job.plan.hash:
                return str(newest_good(folder).absolute())
        except DataError as error:
            logger.warning("the checkpoint of the stop cannot be used: %s", error)
    return ""


def _checkpoint_places(config: JobConfig, job: Job) -> tuple[Path, ...]:
    before = JobConfig.from_record(job.config).checkpoint_directory
    return tuple(dict.fromkeys((before, config.checkpoint_directory)))


def _refuse_left_behind(config: JobConfig, job: Job, state: JournalState) -> None:
    """See that versions which callbacks have kept, as the best ones so far, are found by the job as it goes on.

    Raises
    ------
    ConfigError
        If they lie in the folder that the checkpoints went to before.
    """
    before, place = JobConfig.from_record(job.config).checkpoint_directory, config.checkpoint_directory
    kept = state.rounds[-1].decision.kept if state.rounds else ()
    if place.resolve() == before.resolve():
        return
    for version in kept:
        folder = version_folder(place, version)
        if not folder.is_dir() or not look_at(folder).is_good:
            raise ConfigError(
                f'checkpoint_dir "{place}" lacks version-{version}, which callbacks have kept as the best one so far in '
                f"{before}",
                f"--checkpoint_dir={before}; or copy {version_folder(before, version)} into {place} first",
            )


def _cut_for(config: JobConfig, job: Job, partitions: int) -> str:
    """Return the checkpoint that another number of partitions can begin from."""
    for place in _checkpoint_places(config, job):
        try:
            return str(newest_good(place, job.plan.hash).absolute())
        except DataError as error:
            reason = error.message
    before = JobConfig.from_record(job.config)
    if config.is_allreduce != before.is_allreduce:
        raise ConfigError(
            f"distribution_strategy={config.distribution_strategy}, but the job ran with "
            f"{before.distribution_strategy} and has no good checkpoint: {reason}",
            f"--distribution_strategy={before.distribution_strategy}",
        )
    raise ConfigError(
        f"num_ps_pods={partitions}, but the job ran with {job.partitions} and has no good checkpoint: {reason}",
        f"--num_ps_pods={job.partitions}",
    )


def _essence(record: dict[str, str | int | float | bool | None]) -> dict[str, object]:
    return {name: value for name, value in record.items() if name not in _OF_THIS_PROCESS}

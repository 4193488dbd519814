"""How the flags of one command fit together.  Reads nothing but the values: files are preflight's affair."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from edlz.services.configuration.data_addresses import check_address, is_address
from edlz.services.configuration.endpoints import is_wildcard
from edlz.services.configuration.export_flags import export_problems
from edlz.services.configuration.flags import COMMANDS, DATA_FLAGS, PURPOSES, Purpose, Reader
from edlz.services.configuration.job_config import (
    MAX_JOB_NAME,
    MAX_KEPT_JOB_NAME,
    NO_LIMIT,
    JobConfig,
    flags_by_spelling,
    legal_job_name,
)
from edlz.services.configuration.job_size import would_wait
from edlz.services.configuration.model_params import parse_model_params
from edlz.services.configuration.problems import Problem
from edlz.services.configuration.settings import Setting
from edlz.services.configuration.worker_priority import parse_worker_priority
from edlz.services.errors import ConfigError

__all__ = ["Finding", "check_flags", "idle_workers"]

_HOST = re.compile(r"[0-9a-fA-F:]+|[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}|[a-z]+://.+")
_DROP = "drop one of the two"
_SERVERS = "--distribution_strategy=ParameterServerStrategy"
_MODEL_EXAMPLE = "e.g. --model_def=mnist.mnist_functional_api.custom_model"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with the flags that it is about, so that it can be left out if one of them is bad anyway."""

    level: Literal["error", "warning"]
    flags: tuple[str, ...]
    problem: Problem


def check_flags(
    config: JobConfig, settings: Mapping[str, Setting], reader: Reader, *, begins_job: bool
) -> Iterator[Finding]:
    """Find everything in which the flags contradict each other or cannot work.

    Parameters
    ----------
    settings : mapping of str to Setting
        The values as given, by flag name, for citing.
    reader : Reader
        The command whose flags they are.
    begins_job : bool
        Whether a new job is to have them.
    """
    if reader in PURPOSES or reader == "master":
        yield from _check_required(config, PURPOSES.get(reader) or _purpose_by_hand(config))
        yield from _check_modes(config, settings, reader, is_resumed=not begins_job and reader in PURPOSES)
        yield from _check_addresses(config)
        yield from _check_name(config, MAX_JOB_NAME if begins_job else MAX_KEPT_JOB_NAME)
        yield from _check_results(config)
        yield from _check_export(config)
        yield from _check_priority(config, reader)
        yield from _check_page(config)
    if reader in ("worker", "ps") and not _ADDRESS.fullmatch(config.master_addr):
        message = f'--master_addr="{config.master_addr}" is not HOST:PORT'
        yield _error(message, "e.g. --master_addr=localhost:50001", "master_addr")
    yield from _check_transport(config, reader)
    if config.model_def and config.model_file:
        message = "--model_def with --model_file: both name the model"
        yield _error(message, "drop one of the two", "model_def", "model_file")
    try:
        parse_model_params(config.model_params)
    except ConfigError as e:
        yield _error(e.message, e.help, "model_params")


def idle_workers(config: JobConfig, tasks: int | None = None, *, is_resumed: bool = False) -> Problem | None:
    """Return the warning that some of the workers would have nothing to do in synchronous mode.

    Parameters
    ----------
    tasks : int, optional
        How many tasks an epoch has, or an evaluation, if that is known.
    is_resumed : bool
        Whether the job has been planned: then its steps stay as they are.
    """
    workers, slots = config.num_workers, config.grads_to_wait
    if config.is_sync and workers > slots:
        return Problem(
            f"num_workers={workers}, but grads_to_wait={slots}: {would_wait(workers - slots)}",
            f"--num_workers={slots}"
            if is_resumed
            else f"--grads_to_wait={workers}, or --num_workers={slots}",
        )
    if tasks is not None and workers > tasks > 0:
        where = (
            "an epoch has"
            if config.purpose == "training"
            else "there is only"
            if tasks == 1
            else "there are only"
        )
        return Problem(
            f"num_workers={workers}, but {where} {_count(tasks, 'task')}: {would_wait(workers - tasks)}",
            f"a smaller --{config.task_size_flag}, or --num_workers={tasks}",
        )
    return None


def _purpose_by_hand(config: JobConfig) -> Purpose:
    """Return what a master is for that was given some data: with nothing to begin from it can only train."""
    is_told = config.checkpoint_dir_for_init or config.prediction_data or config.analysis_data
    return config.purpose if is_told else "training"


def _check_required(config: JobConfig, purpose: Purpose) -> Iterator[Finding]:
    if not (config.model_def or config.model_file or purpose == "analysis"):
        yield _error("--model_def is missing", _MODEL_EXAMPLE, "model_def", "model_file")
    data = DATA_FLAGS[purpose]
    if not getattr(config, data):
        yield _missing(data)
    if config.analysis_data and not config.statistics_output:  # on a cluster, where pods share volumes alone
        yield _missing("statistics_output")
    alone = {"prediction": "predicts", "analysis": "analyzes"}.get(purpose)
    if alone:
        for other in ("training_data", "validation_data", "prediction_data"):
            if other != data and getattr(config, other):
                message = f"--{data} with --{other}: a job either {alone} or not"
                yield _error(message, "drop one of the two", data, other)
    if purpose in ("evaluation", "prediction") and not config.checkpoint_dir_for_init:
        yield _missing("checkpoint_dir_for_init")


def _check_addresses(config: JobConfig) -> Iterator[Finding]:
    for flag in DATA_FLAGS.values():
        try:
            check_address(getattr(config, flag), f"--{flag}")
        except ConfigError as error:
            yield _error(error.message, error.help, flag)


def _check_name(config: JobConfig, most: int) -> Iterator[Finding]:
    if config.job_name != legal_job_name(config.job_name, most):
        message = f'--job_name="{config.job_name}" is no job name: a-z, 0-9 and - (at most {MAX_JOB_NAME})'
        yield _error(message, f"--job_name={legal_job_name(config.job_name)}", "job_name")


def _check_page(config: JobConfig) -> Iterator[Finding]:
    port = config.status_port
    if port not in ("", "none") and not (port.isdecimal() and len(port) <= 5 and int(port) <= 65535):
        message = f'--status_port="{port}" is neither a port nor none'
        yield _error(message, "e.g. --status_port=0, for a free one", "status_port")
    if config.status_host and not _HOST.fullmatch(config.status_host):
        message = f'--status_host="{config.status_host}" is no address of this machine'
        yield _error(message, "e.g. --status_host=0.0.0.0, for all of them", "status_host")


def _check_transport(config: JobConfig, reader: Reader) -> Iterator[Finding]:
    if config.keys_dir and config.transport_security == "none":
        message = f"--keys_dir={config.keys_dir} with --transport_security=none"
        yield _error(message, "drop one of the two", "keys_dir", "transport_security")
    has_partition = reader == "master" and config.num_ps_pods == 0 and not config.is_allreduce
    is_told_to_others = reader in ("ps", "worker") or has_partition
    if is_told_to_others and is_wildcard(config.host):
        message = f"--host={config.host} is no address that workers can connect to"
        yield _error(message, "--host=HOST with this machine's name or IP address", "host")


def _check_modes(
    config: JobConfig, settings: Mapping[str, Setting], reader: Reader, *, is_resumed: bool
) -> Iterator[Finding]:
    if config.use_async and config.grads_to_wait > 1:
        both = [settings[name].plain() for name in ("use_async", "grads_to_wait") if name in settings]
        message = f"{' with '.join(both)}: async applies each gradient at once"
        yield _error(message, "drop one of the two", "use_async", "grads_to_wait")
    for name in ("lr_staleness_modulation", "get_model_steps"):
        is_given = getattr(config, name) != JobConfig.__dataclass_fields__[name].default
        if is_given and not (config.use_async or config.is_allreduce):  # a group has its own reasons
            message = f"{settings[name].plain() if name in settings else name} without --use_async"
            yield _error(
                f"{message}: in sync mode no gradient is stale", "add --use_async", name, "use_async"
            )
    if config.sync_version_tolerance and config.use_async:
        message = f"--sync_version_tolerance={config.sync_version_tolerance} with --use_async"
        yield _error(
            f"{message}: async takes gradients of any age",
            "drop one of the two",
            "sync_version_tolerance",
            "use_async",
        )
    if config.is_allreduce:
        yield from _check_allreduce(config, is_resumed=is_resumed)
    if config.watch_data:
        yield from _check_watching(config)
    if config.has_no_tables and config.embedding_threshold_bytes != NO_LIMIT:
        reason = "every Embedding stays in the model, whatever its size"
        yield _unfit(config, "embedding_threshold_bytes", reason)
    if reader in PURPOSES:
        yield from _check_workers(config)
    idle = idle_workers(config, is_resumed=is_resumed)
    if idle is not None:
        yield Finding("warning", ("num_workers", "grads_to_wait", "use_async"), idle)


def _check_allreduce(config: JobConfig, *, is_resumed: bool) -> Iterator[Finding]:
    reasons = {
        "use_async": "the members of a group take synchronous steps",
        "num_ps_pods": "the workers hold the model themselves",
        "sync_version_tolerance": "all members of a group are at one version",
        "watch_data": "all data is there when a group begins",
        "get_model_steps": "a member has the model itself, and pulls nothing",
        "lr_staleness_modulation": "all members of a group are at one version",
    }
    if config.num_epochs == 0 and not config.watch_data:
        yield _unfit(config, "num_epochs", "a group ends with its last epoch")
    unused = {"get_model_steps": 1}  # else 0
    for name, reason in reasons.items():
        if getattr(config, name) != unused.get(name, 0):
            yield _unfit(config, name, reason, _SERVERS if is_resumed else _DROP)


def _check_watching(config: JobConfig) -> Iterator[Finding]:
    if config.num_epochs > 1:
        message = (
            f"--watch_data with num_epochs={config.num_epochs}: data that has no end is passed over once"
        )
        yield _error(message, "drop one of the two", "watch_data", "num_epochs")
    if is_address(config.training_data):
        message = f"--watch_data with training_data={config.training_data}: only folders of this machine are watched"
        yield _error(message, "mount the store, or copy files as they come", "watch_data", "training_data")


def _unfit(config: JobConfig, name: str, reason: str, help: str = _DROP) -> Finding:  # noqa: A002
    """Return that a flag does not fit the strategy."""
    value, strategy = getattr(config, name), f"--distribution_strategy={config.distribution_strategy}"
    given = f"--{name}" if value is True else f"--{name}={value}"
    return _error(f"{given} with {strategy}: {reason}", help, name, "distribution_strategy")


def _check_workers(config: JobConfig) -> Iterator[Finding]:
    count, least, most = config.num_workers, config.min_workers, config.max_workers
    if count == 0:
        yield _error(
            f"--num_workers=0: nobody would {COMMANDS[config.purpose]}", "e.g. --num_workers=2", "num_workers"
        )
    elif count < least:
        message = f"num_workers={count} is less than min_workers={least}"
        yield _error(
            message, f"--num_workers={least}, or a smaller --min_workers", "num_workers", "min_workers"
        )
    if most and count > most:
        message = f"num_workers={count} exceeds max_workers={most}"
        yield _error(
            message, f"--num_workers={most}, or a greater --max_workers", "num_workers", "max_workers"
        )
    if 0 < config.local_slots < least:
        message = f"min_workers={least} exceeds local_slots={config.local_slots}"
        yield _error(
            message, f"--local_slots={least}, or a smaller --min_workers", "min_workers", "local_slots"
        )


def _check_priority(config: JobConfig, reader: Reader) -> Iterator[Finding]:
    try:
        parse_worker_priority(config.worker_pod_priority)
    except ConfigError as e:
        yield _error(e.message, e.help, "worker_pod_priority")
        return
    is_alone = not config.local_slots and not config.is_for_cluster
    if reader in PURPOSES and config.worker_pod_priority and is_alone:
        message = f"worker_pod_priority={config.worker_pod_priority} without local_slots: nobody has to wait"
        problem = Problem(message, f"e.g. --local_slots={config.num_workers}, for this job and the others")
        yield Finding("warning", ("worker_pod_priority", "local_slots"), problem)


def _check_results(config: JobConfig) -> Iterator[Finding]:
    if config.evaluation_steps and not config.validation_data:
        message = f"evaluation_steps={config.evaluation_steps} without validation_data: nothing is evaluated"
        problem = Problem(message, "e.g. --validation_data=data/mnist/test")
        yield Finding("warning", ("evaluation_steps", "validation_data"), problem)
    if (
        config.validation_data
        and not config.evaluation_steps
        and (config.watch_data or not config.num_epochs)
    ):
        message = "validation_data without evaluation_steps: a job without an end is evaluated when it is ended, not before"
        problem = Problem(message, "e.g. --evaluation_steps=1000")
        yield Finding("warning", ("evaluation_steps", "num_epochs", "watch_data"), problem)
    if config.records_per_task < config.minibatch_size:
        message = (
            f"records_per_task={config.records_per_task} is below minibatch_size={config.minibatch_size}: "
            f"a minibatch has no more than {_count(config.records_per_task, 'record')}"
        )
        problem = Problem(message, f"--records_per_task={config.minibatch_size} or more")
        yield Finding("warning", ("records_per_task", "minibatch_size"), problem)
    if config.keep_checkpoint_max and not config.checkpoint_steps:
        message = f"keep_checkpoint_max={config.keep_checkpoint_max} without checkpoint_steps: none is saved"
        problem = Problem(message, "e.g. --checkpoint_steps=1000")
        yield Finding("warning", ("keep_checkpoint_max", "checkpoint_steps"), problem)


def _check_export(config: JobConfig) -> Iterator[Finding]:
    for name, problem in export_problems(config.output, config.output_format, config.unknown_ids):
        yield Finding("error", (name,), problem)
    given = [name for name in ("output_format", "unknown_ids") if getattr(config, name)]
    if given and not config.output:
        message = f"{given[0]}={getattr(config, given[0])} without output: nothing is exported"
        yield Finding("warning", (given[0], "output"), Problem(message, "e.g. --output=out/model"))


def _missing(name: str) -> Finding:
    return _error(f"--{name} is missing", f"e.g. --{name}={flags_by_spelling()[name].example}", name)


def _error(message: str, help: str, *names: str) -> Finding:  # noqa: A002
    return Finding("error", names, Problem(message, help))


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"

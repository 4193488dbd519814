"""The functions that begin jobs from Python: each takes what its command takes, under the same names."""

import os
from collections.abc import Callable
from typing import Any

from edlz.client.arguments.jobs import named_job
from edlz.client.job_files.job_index import LocalJob
from edlz.client.local.beginning import check_for
from edlz.client.local.job import JobHere
from edlz.client.local.job_lock import lock_holder
from edlz.client.python.arguments import arguments_of, doc_of, signature_of
from edlz.client.python.background import begin_in_background
from edlz.client.python.elsewhere import apart, awaited
from edlz.client.python.handle import Job
from edlz.services.configuration.arguments import read_config
from edlz.services.configuration.flags import Reader
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import InvalidConfigError

__all__ = [
    "analyze",
    "analyze_async",
    "evaluate",
    "evaluate_async",
    "predict",
    "predict_async",
    "train",
    "train_async",
]

SUMMARIES: dict[Reader, str] = {
    "train": "Begin to train a Keras model, on this machine or with an image on Kubernetes; return the job.",
    "evaluate": "Begin to evaluate a checkpoint; return the job.",
    "predict": "Begin to predict with a checkpoint; return the job.",
    "analyze": "Begin to compute statistics of data; return the job.",
}


def _begin(command: Reader, given: dict[str, Any]) -> Job:
    """Check what can be checked here, start the command, and return its job when that has begun."""
    argv = arguments_of(command, given)
    reading = read_config(argv, command, os.environ)
    if reading.errors:
        raise InvalidConfigError(reading.errors)
    config = reading.config
    if not config.is_for_cluster:
        _check(config)
    folder = config.job_directory.absolute()

    def has_begun(pid: int) -> bool:
        holder = lock_holder(folder)
        return not config.is_for_cluster and holder is not None and holder.pid == pid

    begin_in_background([command, *argv, "--progress=quiet"], has_begun)
    if config.is_for_cluster:
        return Job(named_job(config.job_name, config.namespace))
    word = str(folder) if config.job_dir else config.job_name
    return Job(JobHere(LocalJob(config.job_name, folder, word)))


def _check(config: JobConfig) -> None:
    """Look at model and data, so that what is wrong with them is an error of its own here."""
    preflight = check_for(config)
    if preflight.errors:
        raise InvalidConfigError(preflight.errors)


def _describe(function: Any, command: Reader, name: str, summary: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__, function.__signature__ = doc_of(command, summary), signature_of(command, Job)


def _made(command: Reader) -> tuple[Callable[..., Job], Callable[..., Any]]:
    """Return a command's function, and the one for a loop, with its flags as their parameters."""

    def call(**flags: Any) -> Job:
        return apart(_begin, command, flags)

    async def call_async(**flags: Any) -> Job:
        return await awaited(_begin, command, flags)

    _describe(call, command, command, SUMMARIES[command])
    _describe(call_async, command, f"{command}_async", f"{SUMMARIES[command]} The loop goes on.")
    return call, call_async


train, train_async = _made("train")
evaluate, evaluate_async = _made("evaluate")
predict, predict_async = _made("predict")
analyze, analyze_async = _made("analyze")

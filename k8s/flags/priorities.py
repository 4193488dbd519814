"""The priority classes of pods: one for the master, one for the ps, and what `--worker_pod_priority` mixes."""

from collections import Counter
from collections.abc import Iterable, Iterator

from edlz.k8s.flags.syntax import is_subdomain, problem_of
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.problems import Problem
from edlz.services.configuration.worker_priority import parse_worker_priority
from edlz.services.supervision.launcher import split_name

__all__ = ["next_worker_class", "pod_priority", "priority_classes", "priority_problems"]


def pod_priority(config: JobConfig, name: str) -> str:
    """Return the class of a pod, or nothing; that of a worker by its number.

    A parameter server has that of the master, if it is given none: a job stands still without either, so
    one that could be taken away before any worker would make the master's priority worthless.

    A worker that took the place of a lost one has a number beyond those of the first ones.  They are counted on
    in circles; `next_worker_class` is exact where it is known which workers there are.
    """
    role, index = split_name(name)
    if role == "worker":
        classes = parse_worker_priority(config.worker_pod_priority).classes(max(1, config.num_workers))
        return classes[index % len(classes)]
    if role == "ps":
        return config.ps_pod_priority or config.master_pod_priority
    return config.master_pod_priority


def next_worker_class(config: JobConfig, workers: int, present: Iterable[str]) -> str:
    """Return the class of the next worker, so that all together have the mix that was asked for.

    Parameters
    ----------
    workers : int
        How many are wanted.
    present : iterable of str
        The classes of those that are there.
    """
    classes = parse_worker_priority(config.worker_pod_priority).classes(max(1, workers))
    missing = Counter(classes) - Counter(present)
    return next((name for name in classes if missing[name] > 0), classes[-1])


def priority_classes(config: JobConfig) -> tuple[str, ...]:
    """Return the classes that a job's pods need, each once."""
    workers = parse_worker_priority(config.worker_pod_priority).classes(max(1, config.num_workers))
    names = (config.master_pod_priority, config.ps_pod_priority, *workers)
    return tuple(dict.fromkeys(name for name in names if name))


def priority_problems(config: JobConfig) -> Iterator[Problem]:
    """Find classes of master and ps that can be none; those of workers are checked with the flags."""
    for flag in ("master_pod_priority", "ps_pod_priority"):
        name = getattr(config, flag)
        if name and not is_subdomain(name):
            message = "is no class name: a-z, 0-9, - and ."
            yield problem_of(flag, name, message, "kubectl get priorityclass lists them")

"""The memory of a worker that takes the place of one that had too little: more each time, up to a cap."""

from collections.abc import Mapping
from fractions import Fraction

from edlz.k8s.flags.resources import (
    bytes_of,
    limits_of,
    memory_quantity,
    number_of,
    parse_resources,
    requests_of,
)
from edlz.services.configuration.job_config import JobConfig

__all__ = ["more_memory", "with_memory"]

_GROWTH = Fraction(3, 2)


def more_memory(config: JobConfig, last: str | None) -> str | None:
    """Return the memory of the next worker, after one with `last` ran out of it.

    Returns
    -------
    str or None
        A quantity of 1.5 times the last; no more than --max_worker_memory, or twice the limit in the settings.
        None if no memory is given in the settings, so none can grow.

    Parameters
    ----------
    last : str, optional
        What that worker had; None for what the settings say.
    """
    asked = limits_of(config, "worker").get("memory") or requests_of(config, "worker").get("memory")
    if asked is None:
        return None
    cap = 2 * bytes_of(asked)
    if config.max_worker_memory:
        cap = bytes_of(parse_resources(f"memory={config.max_worker_memory}", "max_worker_memory")["memory"])
    had = bytes_of(last or asked)
    return memory_quantity(max(had, min(int(had * _GROWTH), cap)))


def with_memory(
    requests: Mapping[str, str], limits: Mapping[str, str], memory: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return requests and limits with another limit of memory; the request grows as the limit does."""
    if "memory" not in limits:
        return {**requests, "memory": memory}, dict(limits)
    if "memory" not in requests:
        return dict(requests), {**limits, "memory": memory}
    factor = number_of(memory) / number_of(limits["memory"])
    request = memory_quantity(int(number_of(requests["memory"]) * factor))
    return {**requests, "memory": min(request, memory, key=number_of)}, {**limits, "memory": memory}

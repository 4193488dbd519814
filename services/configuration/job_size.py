"""How large a job may be, as each of its processes is named in every round of whoever runs them; how large it should be."""

from edlz.services.errors import ConfigError

__all__ = ["MOST_SERVERS", "MOST_TASKS", "MOST_WORKERS", "check_workers", "scale_warning", "would_wait"]

MOST_WORKERS, MOST_SERVERS = 10_000, 1_000
MOST_TASKS = 50_000_000  # over all epochs: each partition has a number for each of them


def check_workers(workers: int, least: int, most: int | None) -> None:
    """Refuse a number of workers that a job cannot have.

    Parameters
    ----------
    least, most : int
        --min_workers and --max_workers; 0 or None for no bound.

    Raises
    ------
    ConfigError
    """
    if not 0 <= workers <= MOST_WORKERS:
        raise ConfigError(
            f"workers={workers} is not within 0..{MOST_WORKERS}, what a job may have",
            f"--workers={MOST_WORKERS} or fewer",
        )
    if workers < least:
        raise ConfigError(
            f"workers={workers} is less than --min_workers={least}", f"--workers={least} or more"
        )
    if most and workers > most:
        raise ConfigError(
            f"workers={workers} is more than --max_workers={most}", f"--workers={most} or fewer"
        )


def scale_warning(workers: int, grads_to_wait: int) -> str:
    """Return what to tell whoever wants so many workers in synchronous mode; nothing if each has work in a step."""
    if workers <= grads_to_wait:
        return ""
    idle = would_wait(workers - grads_to_wait)
    return f"grads_to_wait={grads_to_wait}, so {idle}; start with --grads_to_wait={workers}"


def would_wait(workers: int) -> str:
    """Say that so many workers would have nothing to do."""
    return f"{workers} worker{'' if workers == 1 else 's'} would wait"

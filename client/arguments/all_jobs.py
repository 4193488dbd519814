"""Looking at all jobs at once; no more is imported than what is there asks for."""

from edlz.client.cluster.index import list_places
from edlz.client.job_files.job_index import earlier_runs, list_jobs
from edlz.client.local.job_view import look_at
from edlz.client.screen.job_view import JobView

__all__ = ["asks_clusters", "look_at_all"]


def look_at_all(namespace: str = "", *, is_all: bool = False, is_brief: bool = False) -> list[JobView]:
    """Return how the jobs fare: those of this machine and those submitted from here, or all of a namespace.

    `is_all`: with earlier runs; `is_brief`: see `local.job_view.look_at`.  It takes no longer than a master or an API server has to answer.
    """
    found: list[JobView] = []
    if not namespace:
        found += look_at([*list_jobs(), *(earlier_runs() if is_all else [])], is_brief=is_brief)
    if asks_clusters(namespace):
        # Not above: asyncio and all that reads a cluster's answers, of which a list of local jobs has no need.
        from edlz.client.cluster.queries import look_at_clusters

        found += look_at_clusters(namespace)
    return found


def asks_clusters(namespace: str) -> bool:
    """Return whether a cluster has to be asked."""
    return bool(namespace or list_places())

"""Jobs wherever they are: what the commands ask of one, and how a name on a command line finds it.

A job has one of two homes: a folder of this machine (`local.job`), or a namespace of a cluster
(`cluster.job`).  The commands know neither.  A cluster is asked only if a job was submitted from here, or
a namespace is given; until then nothing of Kubernetes is imported.
"""

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from edlz.client.arguments.all_jobs import asks_clusters
from edlz.client.arguments.completion import complete_job
from edlz.client.cluster.index import no_job_there, place_of, places_of
from edlz.client.job_files.job_index import LocalJob, NoSuchJob, find_job, list_jobs
from edlz.client.local.job import JobHere
from edlz.client.local.job_lock import lock_holder, master_by_hand
from edlz.client.screen.job_view import JobView
from edlz.client.screen.log_choice import LogChoice, LogOutput
from edlz.services.configuration.job_config import legal_job_name
from edlz.services.errors import ConfigError

if TYPE_CHECKING:
    from edlz.client.screen.screens import Screen
    from edlz.services.protocol.messages import Scaled

__all__ = ["Job", "JobArgument", "NamespaceFlag", "all_that_run", "chosen_job", "named_job"]

JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[JOB]",
        help="name of a job, or its folder; the one that runs, if left out",
        autocompletion=complete_job,
    ),
]
NamespaceFlag = Annotated[
    str, typer.Option("-n", "--namespace", metavar="NAME", help="of a cluster, where the job is")
]


class Job(Protocol):
    """A job, and what can be done with it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def word(self) -> str:
        """What finds it on a command line."""
        ...

    @property
    def where(self) -> str:
        """`local`, or `k8s/research`."""
        ...

    def view(self) -> JobView:
        """Return how it fares."""
        ...

    def watch(self, screen: "Screen") -> None:
        """Pass its statuses on to a screen until it does not run any more."""
        ...

    def asked_workers(self) -> int:
        """Return how many workers it was given at its beginning."""
        ...

    def print_logs(self, choice: LogChoice, output: LogOutput) -> None:
        """Print lines of its services, until its end if they are followed."""
        ...

    def scale(self, workers: int) -> "Scaled":
        """Ask for another number of workers."""
        ...

    def refuse_idle(self, *, is_now: bool = False) -> None:
        """Raise ConfigError unless it runs and can be told to stop; `is_now`: or has left something to end."""
        ...

    def begin_stop(self) -> list[str]:
        """Tell it to save and stop; return what there is to say of it."""
        ...

    def end_now(self) -> list[str]:
        """End it at once, whatever state it is in, if there is anything to end; return what there is to say then."""
        ...

    def open_page(self, show: Callable[[str], None]) -> None:
        """Show the address of its status page, or of its report; return when nobody needs this process for it."""
        ...

    def wait(self, limit_s: float | None = None) -> bool:
        """Return whether it has ended, when it has, or `limit_s` seconds are over."""
        ...

    def resume(self, argv: Sequence[str]) -> int:
        """Go on with it where it was, with these further flags; return the exit code."""
        ...

    def remove(self) -> list[str]:
        """Remove it, if it does not run; return what there is to say."""
        ...


def named_job(name: str, namespace: str = "") -> Job:
    """Return the job of this name or folder; with a namespace, the one there.

    Raises
    ------
    NoSuchJob
        If there is none of that name.
    ConfigError
        If there is one here and one on a cluster.
    """
    if namespace:
        return _on_cluster(name, namespace)
    places = places_of(name)
    try:
        here = find_job(name)
    except NoSuchJob:
        if not places:
            raise
        here = None
    if here is None and len(places) == 1:
        return _on_cluster(name, places[0].namespace)
    if here is not None and not places:
        return _here(here)
    raise _ambiguous(name, here, sorted({place.namespace for place in places}))


def chosen_job(name: str | None, namespace: str = "") -> Job:
    """Return the job of this name or folder; the one that runs, if none is named.

    Raises
    ------
    NoSuchJob
        If there is none of that name.
    ConfigError
        If none is named, and none runs, or several do.
    """
    if name is not None:
        return named_job(name, namespace)
    known = [] if namespace else list_jobs()
    live = all_that_run(namespace, with_by_hand=True)
    if len(live) == 1:
        return live[0]
    where = f"in {namespace}" if namespace else "here"
    running = f"{len(live)} jobs run" if live else "no job runs"
    there = ", ".join(job.word for job in live or known)
    nothing = f"edlz ls -n {namespace}" if namespace else "none has been run here yet: edlz train --help"
    raise ConfigError(f"which job? {running} {where} now", f"name one of: {there}" if there else nothing)


def all_that_run(namespace: str = "", *, with_by_hand: bool = False) -> list[Job]:
    """Return the jobs that run: here and those submitted from here, or all of a namespace."""
    found: list[Job] = []
    if not namespace:
        found += [
            _here(job)
            for job in list_jobs()
            if lock_holder(job.path) or (with_by_hand and master_by_hand(job.path))
        ]
    if asks_clusters(namespace):
        found += _cluster_jobs().running_jobs(namespace)
    return found


def is_agreed(verb: str, jobs: Sequence[Job]) -> bool:
    """Return whether the answer to `VERB JOB, JOB? [y/N]` is yes."""
    print(f"{verb} {', '.join(job.word for job in jobs)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return (sys.stdin.readline() if sys.stdin else "").strip().lower() in ("y", "yes")


def _here(job: LocalJob) -> Job:
    return JobHere(job)


def _on_cluster(name: str, namespace: str) -> Job:
    place = place_of(name, namespace)
    if name != legal_job_name(name):
        raise no_job_there(place)
    job: Job = _cluster_jobs().ClusterJob(place)
    return job


def _cluster_jobs() -> ModuleType:
    # Not above: asyncio and all that talks to a cluster, of which commands on local jobs have no need.
    from edlz.client.cluster import job

    return job


def _ambiguous(name: str, here: LocalJob | None, namespaces: Sequence[str]) -> ConfigError:
    on_cluster = " and ".join(f"k8s/{namespace}" for namespace in namespaces)
    ways = [f"{name} -n {namespace}" for namespace in namespaces]
    if here is None:
        return ConfigError(f'which job? "{name}" is in {on_cluster}', " or ".join(ways))
    return ConfigError(
        f'which job? "{name}" is on this machine and in {on_cluster}', " or ".join([str(here.path), *ways])
    )

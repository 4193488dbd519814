"""Looking at the jobs of clusters: one, all of a namespace, or all that were submitted from here."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edlz.client.cluster.connection import connected
from edlz.client.cluster.index import Place, list_places, places_of
from edlz.client.cluster.job_view import ClusterJobView, view_of, view_without_answer
from edlz.client.cluster.pod_facts import warnings_by_pod
from edlz.k8s.cluster.api_errors import NotFound
from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.cluster.master_trouble import trouble_in
from edlz.k8s.cluster.names import ALL_JOBS, JOB_LABEL, MASTER, pod_name, selector
from edlz.services.errors import EdlzError

if TYPE_CHECKING:
    from edlz.k8s.cluster.api import Cluster

__all__ = ["look_at_clusters", "look_at_job", "refuse_missing_namespace"]

ANSWER_S = 1.0  # that a list of jobs waits for a cluster
LOGIN_S = 10.0  # and for the command by which a kubeconfig logs in
LOG_S, LOG_LINES = 2.0, 50  # of a master that says nothing


async def look_at_job(cluster: "Cluster", place: Place) -> ClusterJobView:
    """Return how a job fares.

    Raises
    ------
    EdlzError
        If the cluster does not answer, or refuses to.
    """
    pods = (await cluster.list_pods(selector(place.name))).items
    view = view_of(place, cluster.context, pods, await _warnings(cluster, pods))
    ahead_s = cluster.clock.ahead_s
    now = time.time() + ahead_s
    if view.is_silent or view.has_fallen_silent(now):
        trouble = await _masters_trouble(cluster, place)
        view = view_of(place, cluster.context, pods, trouble=trouble) if trouble else view
    return view.as_of(now).by_our_clock(ahead_s)


def look_at_clusters(namespace: str = "") -> list[ClusterJobView]:
    """Return how the jobs of a namespace fare, or those that were submitted from here.

    It takes about a second at most: a cluster that does not answer is said in the jobs' notes.

    Raises
    ------
    EdlzError
        If a namespace was named, and its cluster does not answer.
    """
    return asyncio.run(_of_namespace(namespace) if namespace else _of_index())


async def refuse_missing_namespace(cluster: "Cluster") -> None:
    """Raise NotFound if a namespace in which nothing was found is not there, as far as that may be seen."""
    try:
        await cluster.get("Namespace", cluster.namespace)
    except NotFound as error:
        raise NotFound(
            f'there is no namespace "{cluster.namespace}"', "those that there are: kubectl get namespaces"
        ) from error
    except EdlzError:
        return


async def _of_namespace(namespace: str) -> list[ClusterJobView]:
    async with connected(Place(name="", namespace=namespace)) as cluster:
        pods = (await cluster.list_pods(ALL_JOBS)).items
        if not pods:
            await refuse_missing_namespace(cluster)
        warnings = await _warnings(cluster, pods)
    names = sorted({pod.labels[JOB_LABEL] for pod in pods if JOB_LABEL in pod.labels})
    places = [_known(name, namespace, cluster.context) for name in names]
    return _of_places(places, cluster, pods, warnings)


async def _of_index() -> list[ClusterJobView]:
    groups: dict[tuple[str, str], list[Place]] = {}
    for place in list_places():
        groups.setdefault((place.context, place.namespace), []).append(place)
    async with asyncio.TaskGroup() as tasks:
        asking = [
            tasks.create_task(_of_group(places), name=f"ask {context}")
            for (context, _), places in groups.items()
        ]
    return [view for task in asking for view in task.result()]


async def _of_group(places: Sequence[Place]) -> list[ClusterJobView]:
    """Return how jobs of one namespace fare, or that it cannot be seen."""
    cluster = None
    try:
        async with asyncio.timeout(LOGIN_S) as limit, connected(places[0], patience_s=0) as cluster:
            limit.reschedule(asyncio.get_running_loop().time() + ANSWER_S)
            pods = (await cluster.list_pods(ALL_JOBS, patience_s=0)).items
    except TimeoutError:
        limit_s = LOGIN_S if cluster is None else ANSWER_S
        return [view_without_answer(place, f"no answer within {limit_s:.0f}s") for place in places]
    except EdlzError as e:
        return [view_without_answer(place, e.message) for place in places]
    return _of_places(places, cluster, pods)


def _of_places(
    places: Sequence[Place],
    cluster: "Cluster",
    pods: Sequence[Pod],
    warnings: Mapping[str, str] | None = None,
) -> list[ClusterJobView]:
    """Return how jobs fare; why a master has fallen silent is not asked for: that takes a request for each."""
    ahead_s = cluster.clock.ahead_s
    now = time.time() + ahead_s
    views = [view_of(place, cluster.context, _of_job(place.name, pods), warnings) for place in places]
    return [view.as_of(now).by_our_clock(ahead_s) for view in views]


async def _warnings(cluster: "Cluster", pods: Sequence[Pod]) -> dict[str, str]:
    """Return the newest warning of each pod that waits; nothing if events may not be seen."""
    if not any(pod.status.phase == "Pending" for pod in pods):
        return {}
    try:
        return warnings_by_pod(await cluster.list_objects("Event"))
    except EdlzError:
        return {}


async def _masters_trouble(cluster: "Cluster", place: Place) -> str:
    """Return what a master says of the cluster in its log; nothing if that may not be seen."""
    try:
        async with asyncio.timeout(LOG_S):
            log = cluster.pod_log(pod_name(place.name, MASTER), tail_lines=LOG_LINES)
            return trouble_in([line async for line in log])
    except (EdlzError, TimeoutError):
        return ""


def _of_job(name: str, pods: Sequence[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.labels.get(JOB_LABEL) == name]


def _known(name: str, namespace: str, context: str) -> Place:
    """Return where a job is, with what is known of it if it was submitted from here."""
    for place in places_of(name):
        if (place.namespace, place.context) == (namespace, context):
            return place
    return Place(name=name, namespace=namespace)

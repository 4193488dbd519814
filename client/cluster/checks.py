"""What is asked of a cluster before a job is submitted to it, all at once; nothing is created.

Each check gives one line: fine, a warning, a refusal, or that only the master can tell.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from edlz.client.cluster.admission_check import pods_verdict
from edlz.client.cluster.capacity import nodes_of, quotas_of, room_for
from edlz.client.cluster.image_check import architectures_of, image_verdict
from edlz.client.cluster.index import Place
from edlz.client.cluster.job_view import view_of
from edlz.client.cluster.pod_facts import facts_of
from edlz.client.images import daemon
from edlz.client.images.daemon import Address, LocalImage
from edlz.client.screen.checks import Check, Mark
from edlz.k8s.cluster.access import may, user_name
from edlz.k8s.cluster.api_errors import Forbidden, NotFound, NotPermitted
from edlz.k8s.cluster.names import JOB_DIR, MASTER, pod_name
from edlz.k8s.cluster.rights import Subject, listed, rights_line
from edlz.k8s.flags.priorities import priority_classes
from edlz.k8s.flags.resources import requests_of
from edlz.k8s.flags.volumes import parse_volumes
from edlz.services.configuration.export_flags import checkpoints_beside
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.predictions.kinds import PREDICTIONS, STATISTICS
from edlz.services.process.late_thread import in_thread

if TYPE_CHECKING:
    from edlz.k8s.cluster.api import Cluster

__all__ = ["LIMIT_S", "check_access", "check_cluster"]

_Checks = Mapping[str, Callable[[], Awaitable[Sequence[Check]]]]

LIMIT_S = 5.0
DAEMON_S = 2.0  # for what the Docker daemon of this machine knows of the image

_ADVICE = ("room", "image", "admission")  # a large cluster has too many pods to be listed in time
_MOUNT = "mount one: --volume=claim_name=…,mount_path=/ckpt --job_dir=/ckpt/…"
_OF_NAMESPACE = (
    "permissions",
    "master may",
    "pod logs",
    "job name",
    "volume",
    "admission",
)  # tell nothing without one
_RIGHTS = (  # of whoever submits and leads a job: verb, resource, subresource
    ("create", "pods", ""),
    ("get", "pods", ""),
    ("list", "pods", ""),
    ("watch", "pods", ""),
    ("patch", "pods", ""),
    ("delete", "pods", ""),
    ("get", "pods", "log"),
)
_MASTERS_RIGHTS = (
    ("create", "pods", ""),
    ("delete", "pods", ""),
    ("get", "pods", ""),
    ("list", "pods", ""),
    ("watch", "pods", ""),
    ("patch", "pods", ""),
    ("create", "services", ""),
    ("get", "services", ""),
    ("delete", "services", ""),
    ("create", "secrets", ""),
    ("delete", "secrets", ""),
)
_LOG_RIGHTS = (  # without which it runs the job all the same
    ("get", "pods", "log"),
    ("create", "configmaps", ""),
    ("delete", "configmaps", ""),
)


async def check_cluster(
    cluster: "Cluster",
    config: JobConfig,
    image: str,
    account: str = "default",
    pods: Mapping[str, Any] | None = None,
) -> list[Check]:
    """Make all the checks, at once and within LIMIT_S; return what they found, in the order of the page.

    Parameters
    ----------
    account : str
        The service account of the master's pod.
    pods : mapping of str to object, optional
        One of each role, the master's first.
    """
    found = await _made(
        {
            **_access(cluster, account),
            "job name": lambda: _name(cluster, config),
            "volume": lambda: _claims(cluster, config),
            "priority": lambda: _priorities(cluster, config),
            "admission": lambda: _admission(cluster, pods or {}),
            "room": lambda: _room(cluster, config),
            "image": lambda: _image(cluster, config, image),
        }
    )
    if _is_refusal_of(found[0], "cluster"):
        return found
    own = (*_begun_from(config), *_checkpoints(config), *_export(config), *_predictions(config))
    return [*found, *own, _model_and_data(config)]


async def check_access(cluster: "Cluster", account: str = "default") -> list[Check]:
    """Return whether a cluster answers, and what may be done there; see `check_cluster`."""
    return await _made(_access(cluster, account))


def _access(cluster: "Cluster", account: str) -> _Checks:
    return {
        "cluster": lambda: _server(cluster),
        "namespace": lambda: _namespace(cluster),
        "permissions": lambda: _rights(cluster),
        "master may": lambda: _masters_rights(cluster, account),
    }


async def _made(checks: _Checks) -> list[Check]:
    """Make checks at once; return what they found, without what only repeats another refusal."""
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(_within(about, check), name=about) for about, check in checks.items()]
    found = [check for task in made for check in task.result()]
    unreachable = next((check for check in found if _is_refusal_of(check, "cluster")), None)
    if unreachable is not None:  # the others could only say the same
        return [unreachable]
    if any(_is_refusal_of(check, "namespace") for check in found):
        found = [check for check in found if check.about not in _OF_NAMESPACE]
    return found


def _is_refusal_of(check: Check, about: str) -> bool:
    return (check.mark, check.about) == ("no", about)


async def _within(about: str, check: Callable[[], Awaitable[Sequence[Check]]]) -> Sequence[Check]:
    """Return what a check found, or why it could not: that refuses the job, unless the check only advises."""
    mark: Mark = "later" if about in _ADVICE else "no"
    try:
        async with asyncio.timeout(LIMIT_S):
            return await check()
    except TimeoutError:
        return [Check(mark, about, f"no answer within {LIMIT_S:.0f}s", "again, or with --skip_preflight")]
    except EdlzError as e:
        return [Check(mark, about, e.message, e.help)]


async def _server(cluster: "Cluster") -> Sequence[Check]:
    version = await cluster.version()
    try:
        nodes = await cluster.list_objects("Node")
    except Forbidden:
        return [Check("ok", "cluster", f"reachable, {version}")]
    kinds = architectures_of(nodes)
    count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
    return [Check("ok", "cluster", f"reachable, {version}, {count} {' and '.join(sorted(kinds))}".rstrip())]


async def _rights(cluster: "Cluster") -> Sequence[Check]:
    answers = await asyncio.gather(*(may(cluster, *right) for right in _RIGHTS))
    missing = [right for right, is_given in zip(_RIGHTS, answers, strict=True) if not is_given]
    if not missing:
        return [Check("ok", "permissions", f"{len(_RIGHTS)} of {len(_RIGHTS)} (pods and their logs)")]
    who = await user_name(cluster)
    subject = Subject.of(who or "YOUR NAME")
    told = subject.told(cluster.namespace) if who else "you"
    text = f'{told} may not {listed(missing)} in "{cluster.namespace}"'
    return [Check("no", "permissions", text, rights_line(cluster.namespace, subject))]


async def _masters_rights(cluster: "Cluster", account: str) -> Sequence[Check]:
    """See whether the master may make its pods; whoever submits may not be allowed to ask that."""
    try:
        answers = await asyncio.gather(*(may(cluster, *right, account=account) for right in _MASTERS_RIGHTS))
    except (Forbidden, NotFound):
        text = f'what service account "{account}" may do cannot be seen from here'
        return [Check("later", "master may", text)]
    missing = [right for right, is_given in zip(_MASTERS_RIGHTS, answers, strict=True) if not is_given]
    if not missing:
        text = f'service account "{account}" has its {len(answers)} rights (pods, services, secrets)'
        return [Check("ok", "master may", text), *await _keeping_logs(cluster, account)]
    text = f'service account "{account}" in "{cluster.namespace}" may not {listed(missing)}'
    subject = Subject(account, cluster.namespace)
    return [Check("no", "master may", text, rights_line(cluster.namespace, subject))]


async def _keeping_logs(cluster: "Cluster", account: str) -> Sequence[Check]:
    answers = await asyncio.gather(*(may(cluster, *right, account=account) for right in _LOG_RIGHTS))
    missing = [right for right, is_given in zip(_LOG_RIGHTS, answers, strict=True) if not is_given]
    if not missing:
        return []
    text = f'logs of lost pods go with them: service account "{account}" may not {listed(missing)}'
    return [
        Check("warn", "pod logs", text, rights_line(cluster.namespace, Subject(account, cluster.namespace)))
    ]


async def _namespace(cluster: "Cluster") -> Sequence[Check]:
    try:
        found = await cluster.get("Namespace", cluster.namespace)
    except NotFound:
        text = f'there is no namespace "{cluster.namespace}"'
        return [Check("no", "namespace", text, f"kubectl create namespace {cluster.namespace}")]
    except Forbidden:
        return []  # whoever may use one need not be allowed to look at it
    if found.get("status", {}).get("phase") == "Terminating":
        text = f'namespace "{cluster.namespace}" is being deleted'
        return [Check("no", "namespace", text, "use another --namespace, or wait until it is gone")]
    return []


async def _name(cluster: "Cluster", config: JobConfig) -> Sequence[Check]:
    name = config.job_name
    try:
        pod = await cluster.get_pod(pod_name(name, MASTER))
    except NotFound:
        return [Check("ok", "job name", f'"{name}" is free')]
    except NotPermitted:
        return []  # told by the check of the permissions
    view = view_of(Place(name=name, namespace=cluster.namespace), cluster.context, [pod])
    word, state = view.word, view.status.state
    ways = f"edlz stop {word}" if view.is_live else f"edlz rm {word}"
    facts = facts_of(name, pod)
    if facts.is_leaving and not facts.is_out_of_reach:
        ways = "wait until it is gone"
    return [Check("no", "job name", f'job "{name}" exists: {state}', f"{ways}, or --job_name={name}-2")]


async def _claims(cluster: "Cluster", config: JobConfig) -> Sequence[Check]:
    names = dict.fromkeys(v.claim_name for v in parse_volumes(config.volume).volumes if v.claim_name)
    return [await _claim(cluster, name) for name in names]


async def _claim(cluster: "Cluster", name: str) -> Check:
    try:
        claim = await cluster.get("PersistentVolumeClaim", name)
    except NotFound:
        text = f'there is no volume claim "{name}" in "{cluster.namespace}"'
        return Check("no", "volume", text, f"kubectl get pvc -n {cluster.namespace}")
    except Forbidden:
        return Check("later", "volume", f'claim "{name}" may not be looked at from here')
    phase = str(claim.get("status", {}).get("phase", "Pending"))
    if phase == "Bound":
        return Check("ok", "volume", f'claim "{name}" is bound')
    if phase == "Lost":
        text = f'claim "{name}" has lost its volume'
        return Check("no", "volume", text, f"kubectl describe pvc -n {cluster.namespace} {name}")
    text = f'claim "{name}" is {phase}: pods wait until it is bound'
    return Check("warn", "volume", text, f"kubectl describe pvc -n {cluster.namespace} {name}")


async def _priorities(cluster: "Cluster", config: JobConfig) -> Sequence[Check]:
    return [check for name in priority_classes(config) for check in await _priority(cluster, name)]


async def _priority(cluster: "Cluster", name: str) -> Sequence[Check]:
    try:
        found = await cluster.get("PriorityClass", name)
    except NotFound:
        text = f'there is no priority class "{name}"'
        return [Check("no", "priority", text, "kubectl get priorityclasses; k8s/manifests has examples")]
    except Forbidden:
        return [Check("later", "priority", f'class "{name}" may not be looked at from here')]
    return [Check("ok", "priority", f'class "{name}" has value {found.get("value", 0):,}')]


async def _admission(cluster: "Cluster", pods: Mapping[str, Any]) -> Sequence[Check]:
    verdict = await pods_verdict(cluster, pods)
    return [] if verdict is None else [Check(verdict[0], "admission", *verdict[1:])]


async def _room(cluster: "Cluster", config: JobConfig) -> Sequence[Check]:
    if config.cluster_spec or config.cluster_spec_json:
        return []  # which may tolerate or select nodes: the scheduler knows
    try:
        nodes = await cluster.list_objects("Node")
        pods = await cluster.list_objects("Pod", is_everywhere=True)
    except Forbidden:
        return [Check("later", "room", "nodes may not be looked at from here; pods that do not fit wait")]
    quotas: Sequence[dict[str, Any]] = ()
    with suppress(Forbidden):  # they bound pods all the same, and are seen then
        quotas = await cluster.list_objects("ResourceQuota")
    first = [("master", requests_of(config, "master"))]
    first += [("ps", requests_of(config, "ps"))] * config.num_ps_pods
    count = config.num_workers
    room = room_for(nodes_of(nodes, pods), first, requests_of(config, "worker"), count, quotas_of(quotas))
    if room.impossible is not None:
        role, resource, wanted, most = room.impossible
        text = f"{role} asks {resource}={wanted}, the largest node has {most}"
        return [Check("no", "room", text, f"lower --{role}_resource_request")]
    if not room.is_master_in:
        who = "master and ps do" if config.num_ps_pods else "the master does"
        return [Check("warn", "room", f"{who} not fit now ({room.lacking}); the job waits for room")]
    if room.workers < count:
        begins = f"{config.purpose} starts {'with those' if room.workers else 'when one does'}"
        servers = {0: "master", 1: "master, ps"}.get(config.num_ps_pods, f"master, {config.num_ps_pods} ps")
        text = f"{servers} and {room.workers} of {count} workers fit now ({room.lacking}); {begins}"
        return [Check("warn", "room", text)]
    return [Check("ok", "room", f"{count} of {count} workers fit now")]


async def _image(cluster: "Cluster", config: JobConfig, image: str) -> Sequence[Check]:
    here: LocalImage | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(DAEMON_S):
            here = await in_thread(lambda: daemon.look_up(image, Address.of(config)), "look up image")
    try:
        nodes = await cluster.list_objects("Node")
    except Forbidden:
        nodes = ()
    mark, text, advice = image_verdict(image, here, architectures_of(nodes), config.image_pull_policy)
    return [Check(mark, "image", text, advice)]


def _begun_from(config: JobConfig) -> Sequence[Check]:
    folder = config.checkpoint_dir_for_init
    if not folder:
        return []
    if parse_volumes(config.volume).holds(folder):
        return [Check("ok", "begins from", f"{folder} lies on a volume")]
    text = f"{folder} lies on no volume: it has to be in the image"
    return [Check("warn", "begins from", text, "--volume=claim_name=…,mount_path=…")]


def _checkpoints(config: JobConfig) -> Sequence[Check]:
    if config.purpose != "training":
        return []  # what it begins from is kept elsewhere
    volumes = parse_volumes(config.volume)
    if volumes.holds(config.job_dir or JOB_DIR):
        return [Check("ok", "files", f"{config.job_dir}: the job can be resumed")]
    of_members = [_snapshots(config)] if config.is_allreduce else []
    if config.checkpoint_dir and volumes.holds(config.checkpoint_dir):
        return [Check("ok", "checkpoints", f"{config.checkpoint_dir} lies on a volume"), *of_members]
    if config.checkpoint_dir or config.checkpoint_steps:
        what = (
            f'checkpoint_dir "{config.checkpoint_dir}" lies' if config.checkpoint_dir else "checkpoints lie"
        )
        is_in_master = not (config.num_ps_pods or config.is_allreduce)
        is_lost = is_in_master or not config.checkpoint_steps
        text = f"{what} on no volume: {'lost with the pod' if is_lost else 'none is saved'}"
    elif config.is_allreduce:
        return of_members
    else:
        text = "the job's files lie on no volume: lost with the master's pod"
    return [Check("warn", "checkpoints", text, _MOUNT), *of_members]


def _snapshots(config: JobConfig) -> Check:
    """Say what a job whose members share no folder goes on from when all of them are lost."""
    is_saved = config.checkpoint_steps and parse_volumes(config.volume).holds(config.checkpoint_dir)
    then = "training goes back to its newest checkpoint" if is_saved else "training begins anew"
    text = f"the job's files lie on no volume: without any worker left, {then}"
    return Check("warn", "files", text, _MOUNT)


def _export(config: JobConfig) -> Sequence[Check]:
    if not config.output or config.purpose != "training":
        return []
    volumes = parse_volumes(config.volume)
    if not volumes.holds(config.output):
        text = f'output "{config.output}" lies on no volume: it would go with a worker\'s pod'
        return [Check("no", "export", text, "--volume=claim_name=…,mount_path=/out --output=/out/…")]
    if volumes.holds(config.job_dir or JOB_DIR):
        return [Check("ok", "export", f"{config.output} lies on a volume")]
    checkpoints = config.checkpoint_dir or checkpoints_beside(config.output)
    if not volumes.holds(checkpoints):
        text = (
            f'checkpoint_dir "{checkpoints}" lies on no volume: no worker could read the finished model there'
        )
        return [Check("no", "export", text, "leave it out, or name a folder on a --volume")]
    return [Check("ok", "export", f"{config.output}, from a last checkpoint in {checkpoints}")]


def _predictions(config: JobConfig) -> Sequence[Check]:
    """See that all pods of a job write its predictions, or statistics, into one folder, which outlives them."""
    flags = {"prediction": PREDICTIONS.flag, "analysis": STATISTICS.flag}
    flag = flags.get(config.purpose, "")
    folder = getattr(config, flag) if flag else ""
    if not folder:
        return []
    if parse_volumes(config.volume).holds(folder):
        return [Check("ok", "output", f"{folder} lies on a volume")]
    text = f'{flag} "{folder}" lies on no volume: master and workers would each write into their own'
    return [Check("no", "output", text, f"mount one: --volume=claim_name=…,mount_path={folder}")]


def _model_and_data(config: JobConfig) -> Check:
    return Check(
        "later",
        "data" if config.purpose == "analysis" else "model, data",
        "not readable from here; the master checks them before anything else",
    )

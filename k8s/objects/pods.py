"""The pods of a job, from its settings.  Pure functions: nothing here talks to a cluster.

A container runs Python itself, with no shell before it, so signals reach the service.  It may write to its
mounts only: `/tmp`, the job's folder, and what `--volume` names.
"""

import dataclasses
import math
import os
from collections.abc import Mapping

from kubernetes import client

from edlz.k8s.cluster.names import (
    CONFIG,
    JOB_DIR,
    KEYS_DIR,
    MASTER,
    MASTER_KEYS_DIR,
    MASTER_PORT,
    MEMBER_PORT,
    PS_PORT,
    STATUS_PORT,
    Owner,
    labels,
    pod_name,
)
from edlz.k8s.flags.cluster_spec import ClusterSpec
from edlz.k8s.flags.envs import parse_envs, populated_envs
from edlz.k8s.flags.priorities import pod_priority
from edlz.k8s.flags.resources import cores_of, limits_of, requests_of
from edlz.k8s.flags.volumes import Volumes, parse_volumes
from edlz.k8s.objects.mounts import pod_mounts, pod_volumes
from edlz.k8s.objects.worker_memory import with_memory
from edlz.services.configuration.export_flags import checkpoints_beside
from edlz.services.configuration.job_config import JobConfig
from edlz.services.configuration.origins import as_text, places_still_true
from edlz.services.supervision.launcher import split_name

__all__ = ["Owner", "grace_s", "master_pod", "metadata", "pods_of_roles", "service_pod", "settings_in_pods"]

_GRACE_S = {"master": 30, "ps": 20, "worker": 10}
WORKER_PATIENCE_S = (
    4.0  # it goes on so long: where all pods are told to end, the step in hand is completed and saved
)
_USER = 1000
ORPHAN_S = 600.0  # longer than Kubernetes ever waits before it starts a master's container again
_NOT_YET = "not-yet-known"  # the uid of a master that is still to be created
_SOMEWHERE = "127.0.0.1"


def master_pod(config: JobConfig, image: str) -> client.V1Pod:
    """Return the pod of a job's master, which makes all the others.

    Parameters
    ----------
    config : JobConfig
        The settings as they were submitted.
    image : str
        What it runs; ps and workers too, unless --worker_image says otherwise.
    """
    config = settings_in_pods(config, image)
    arguments = [_literal(argument) for argument in config.to_arguments("master")]
    command = ["python", "-m", "edlz.k8s.master", *arguments]
    command += _listening(MASTER_PORT)
    annotations = {CONFIG: config.to_yaml()}
    if config.status_port != "none":
        command.append("--metrics_host=$(MY_POD_IP)")
        port = config.status_port if config.status_port not in ("", "0") else str(STATUS_PORT)
        annotations |= {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": port,
            "prometheus.io/path": "/metrics",
        }
    volumes = parse_volumes(config.volume)
    name = pod_name(config.job_name, MASTER)
    about = metadata(config, name, MASTER, None, annotations=annotations, status="Pending")
    return client.V1Pod(
        api_version="v1",
        kind="Pod",
        metadata=about,
        spec=_pod_spec(
            config,
            MASTER,
            volumes,
            _container(
                config,
                MASTER,
                image,
                command,
                [*_variables(config), _own_variable("MY_POD_UID", "metadata.uid")],
                volumes,
                requests_of(config, MASTER),
                limits_of(config, MASTER),
            ),
            priority=config.master_pod_priority,
        ),
    )


def service_pod(
    config: JobConfig,
    name: str,
    *,
    owner: Owner,
    master_addr: str,
    memory: str | None = None,
    priority: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> client.V1Pod:
    """Return the pod of a parameter server or a worker.

    Parameters
    ----------
    config : JobConfig
        The master's settings.
    name : str
        `ps-0` or `worker-3`.
    owner, master_addr
        The master's pod, and its HOST:PORT.
    memory : str, optional
        A worker's limit of memory in place of the one in the settings: one before it ran out.
    priority : str, optional
        A worker's class in place of that of its number (see `priorities`).
    environ : mapping
        The master's variables, for --populate_env_names.
    """
    role, index = split_name(name)
    volumes = parse_volumes(config.volume)
    requests, limits = requests_of(config, role), limits_of(config, role)
    if memory is not None:
        requests, limits = with_memory(requests, limits, memory)
    variables = _service_variables(config, name, master_addr, environ)
    command = _service_command(config, role, index, master_addr)
    image = config.worker_image or config.image_name
    container = _container(config, name, image, command, variables, volumes, requests, limits)
    priority = pod_priority(config, name) if priority is None else priority
    about = metadata(config, pod_name(config.job_name, name), name, owner)
    spec = _pod_spec(config, name, volumes, container, priority=priority)
    return client.V1Pod(api_version="v1", kind="Pod", metadata=about, spec=spec)


def settings_in_pods(config: JobConfig, image: str) -> JobConfig:
    """Return the settings as they hold in the pods: image, folders, keys, a worker's threads.

    `--job_dir` counts only if it lies on a volume: whatever else it says is a folder of the submitting machine.
    Checkpoints are saved only where master and parameter servers, or workers without them, see the same folder.  A model that is to be exported is
    read from one, if the workers do not see the job's folder: beside the output, unless `--checkpoint_dir` is given.
    """
    volumes = parse_volumes(config.volume)
    job_dir = config.job_dir if config.job_dir and volumes.holds(config.job_dir) else JOB_DIR
    threads = config.worker_threads
    cpu = limits_of(config, "worker").get("cpu") or requests_of(config, "worker").get("cpu")
    if "worker_threads" not in config.given and cpu:
        threads = max(1, math.ceil(cores_of(cpu)))
    exports = bool(config.output) and config.purpose == "training" and not volumes.holds(job_dir)
    if exports and not config.checkpoint_dir and volumes.holds(config.output):
        config = dataclasses.replace(config, checkpoint_dir=checkpoints_beside(config.output))
    is_secure = config.transport_security != "none"
    is_in_master = not (config.num_ps_pods or config.is_allreduce)
    is_common = is_in_master or volumes.holds(config.checkpoint_dir or job_dir)
    inside = dataclasses.replace(
        config,
        checkpoint_steps=config.checkpoint_steps if is_common else 0,
        export_from_checkpoint=exports,
        private_job_dir=not volumes.holds(job_dir),
        image_name=image,
        job_dir=job_dir,
        keys_dir=MASTER_KEYS_DIR if is_secure else "",
        orphan_secs=config.orphan_secs if "orphan_secs" in config.given else ORPHAN_S,
        worker_threads=threads,
        endpoint="",
        port=MASTER_PORT,
        status_port=str(STATUS_PORT) if config.status_port == "0" else config.status_port,
    )
    return dataclasses.replace(inside, origins=as_text(places_still_true(inside, config)))


def grace_s(name: str) -> int:
    """Return the seconds that a pod has to end in order, by its name: master, ps-0, worker-3."""
    return _GRACE_S[split_name(name)[0]]


def pods_of_roles(config: JobConfig, image: str, spec: ClusterSpec) -> dict[str, client.V1Pod]:
    """Return pods by role, the master's first, which is the one to create."""
    pods = {MASTER: spec.pod(master_pod(config, image), MASTER)}
    settings, owner = settings_in_pods(config, image), Owner(pod_name(config.job_name, MASTER), _NOT_YET)
    for role in (("ps",) if config.num_ps_pods else ()) + ("worker",):
        address = f"{_SOMEWHERE}:{MASTER_PORT}"
        pod = service_pod(settings, f"{role}-0", owner=owner, master_addr=address, environ={})
        pods[role] = spec.pod(pod, role)
    return pods


def _service_command(config: JobConfig, role: str, index: int, master_addr: str) -> list[str]:
    command = [
        "python",
        "-m",
        f"edlz.services.{role}",
        f"--{role}_id={index}",
        f"--master_addr={master_addr}",
    ]
    if role == "ps":
        command += [
            *_listening(PS_PORT),
            f"--job_dir={_literal(config.job_dir or JOB_DIR)}",
        ]
    if role == "worker":
        command.append(f"--patience_secs={WORKER_PATIENCE_S:g}")
        if config.is_allreduce:
            command += _listening(MEMBER_PORT)
    if config.transport_security == "none":
        command.append("--transport_security=none")
    else:
        command.append(f"--keys_dir={KEYS_DIR}")
    if config.orphan_secs:
        command.append(f"--orphan_secs={config.orphan_secs:g}")
    return [*command, f"--log_level={config.log_level}", f"--log_format={config.log_format}"]


def _listening(port: int) -> list[str]:
    """Return the arguments that let a service listen at its pod's address, an IPv6 one too: those need brackets."""
    return ["--host=$(MY_POD_IP)", f"--port={port}"]


def _pod_spec(
    config: JobConfig, name: str, volumes: Volumes, container: client.V1Container, *, priority: str
) -> client.V1PodSpec:
    is_master = name == MASTER
    return client.V1PodSpec(
        containers=[container],
        volumes=pod_volumes(config, name, volumes),
        restart_policy=config.restart_policy if is_master else "Never",
        termination_grace_period_seconds=grace_s(name),
        priority_class_name=priority or None,
        automount_service_account_token=None if is_master else False,
        enable_service_links=False,
        security_context=client.V1PodSecurityContext(
            run_as_non_root=True,
            run_as_user=_USER,
            run_as_group=_USER,
            fs_group=_USER,
            fs_group_change_policy="OnRootMismatch",
            seccomp_profile=client.V1SeccompProfile(type="RuntimeDefault"),
        ),
    )


def _container(
    config: JobConfig,
    name: str,
    image: str,
    command: list[str],
    variables: list[client.V1EnvVar],
    volumes: Volumes,
    requests: Mapping[str, str],
    limits: Mapping[str, str],
) -> client.V1Container:
    if config.log_file_path:
        copy = ["python", "-m", "edlz.k8s.log_copy", f"--file={config.log_file_path}", "--"]
        command = copy + command
    return client.V1Container(
        name=pod_name(config.job_name, name),
        image=image,
        image_pull_policy=config.image_pull_policy,
        termination_message_policy="FallbackToLogsOnError",  # so its pod says why it ended
        command=command,
        env=variables,
        resources=client.V1ResourceRequirements(requests=dict(requests), limits=dict(limits)),
        volume_mounts=pod_mounts(config, name, volumes),
        security_context=client.V1SecurityContext(
            allow_privilege_escalation=False,
            capabilities=client.V1Capabilities(drop=["ALL"]),
            read_only_root_filesystem=True,
        ),
    )


def _service_variables(
    config: JobConfig, name: str, master_addr: str, environ: Mapping[str, str]
) -> list[client.V1EnvVar]:
    role, index = split_name(name)
    populated = populated_envs(config.populate_env_names, environ)
    variables = _variables(config, {name: _literal(value) for name, value in populated.items()})
    variables.append(client.V1EnvVar(name="MASTER_ADDR", value=master_addr))
    variables.append(client.V1EnvVar(name="WORKER_NUM", value=str(config.num_workers)))
    if role == "worker":
        variables.append(client.V1EnvVar(name="WORKER_ID", value=str(index)))
    return variables


def _variables(config: JobConfig, populated: Mapping[str, str] | None = None) -> list[client.V1EnvVar]:
    """Return the variables of every pod; what the user gives wins, but for our own names."""
    given = {"HOME": "/tmp", **(populated or {}), **parse_envs(config.envs)}
    own = [
        _own_variable("MY_POD_IP", "status.podIP"),
        _own_variable("MY_POD_NAME", "metadata.name"),
        _own_variable("MY_NAMESPACE", "metadata.namespace"),
    ]
    return own + [client.V1EnvVar(name=name, value=value) for name, value in given.items()]


def _own_variable(name: str, field_path: str) -> client.V1EnvVar:
    source = client.V1EnvVarSource(field_ref=client.V1ObjectFieldSelector(field_path=field_path))
    return client.V1EnvVar(name=name, value_from=source)


def _literal(text: str) -> str:
    """Return an argument that Kubernetes leaves as it is: it takes `$(NAME)` for a variable."""
    return text.replace("$", "$$")


def metadata(
    config: JobConfig,
    object_name: str,
    name: str,
    owner: Owner | None,
    *,
    annotations: Mapping[str, str] | None = None,
    **more_labels: str,
) -> client.V1ObjectMeta:
    """Return the metadata of an object.

    Parameters
    ----------
    object_name : str
        The object's own name.
    name : str
        The pod that it is, or belongs to: master, ps-0, worker-3.
    owner : Owner, optional
        The pod whose end removes it; None for the master pod itself.
    """
    references = None
    if owner is not None:
        references = [
            client.V1OwnerReference(
                api_version="v1",
                kind="Pod",
                name=owner.name,
                uid=owner.uid,
                controller=True,
                block_owner_deletion=True,
            )
        ]
    return client.V1ObjectMeta(
        name=object_name,
        namespace=config.namespace or None,
        labels={**labels(config.job_name, name), **more_labels},
        annotations=dict(annotations or {}),
        owner_references=references,
    )

"""The volumes of a pod and where they are mounted: scratch folders, the job's keys, and what `--volume` names.

A container's root is read-only, so each folder that a service writes to is a mount.  One that lies on no
`--volume` is an emptyDir: it outlives the container, and goes with the pod.  The master's secret key never lies on
a `--volume`: all pods of the job mount those, as one user.
"""

from pathlib import PurePosixPath

from kubernetes import client

from edlz.k8s.cluster.names import JOB_DIR, KEYS_DIR, MASTER, secret_name
from edlz.k8s.flags.volumes import Volumes
from edlz.services.configuration.job_config import JobConfig
from edlz.services.supervision.launcher import split_name
from edlz.services.transport.keys import PUBLIC_FILE, secret_file

__all__ = ["pod_mounts", "pod_volumes", "scratch_folders"]

_GROUP_READS = 0o440
_KEYS_SIZE = "1Mi"


def scratch_folders(config: JobConfig, volumes: Volumes) -> dict[str, str]:
    """Return the folders that are the pod's own and go with it, by the name of their volume."""
    folders = {"tmp": "/tmp", "job": config.job_dir or JOB_DIR}
    if config.checkpoint_dir:
        folders["checkpoints"] = config.checkpoint_dir
    if config.tensorboard_log_dir:
        folders["tensorboard"] = config.tensorboard_log_dir
    if config.log_file_path:
        folders["logs"] = str(PurePosixPath(config.log_file_path).parent)
    kept: dict[str, str] = {}
    for name, path in folders.items():
        if not volumes.holds(path) and not any(
            PurePosixPath(path).is_relative_to(other) for other in kept.values()
        ):
            kept[name] = path
    return kept


def pod_volumes(config: JobConfig, name: str, volumes: Volumes) -> list[client.V1Volume]:
    """Return the volumes of the pod `name`: master, ps-0, worker-3."""
    made = [
        client.V1Volume(name=scratch, empty_dir=client.V1EmptyDirVolumeSource())
        for scratch in scratch_folders(config, volumes)
    ]
    if config.transport_security != "none" and name == MASTER:
        memory = client.V1EmptyDirVolumeSource(medium="Memory", size_limit=_KEYS_SIZE)
        made.append(client.V1Volume(name="keys", empty_dir=memory))
    elif config.transport_security != "none":
        files = (PUBLIC_FILE, secret_file(split_name(name)[0]))  # the other roles' secrets stay away from it
        source = client.V1SecretVolumeSource(
            secret_name=secret_name(config.job_name),
            default_mode=_GROUP_READS,
            items=[client.V1KeyToPath(key=file, path=file) for file in files],
        )
        made.append(client.V1Volume(name="keys", secret=source))
    for volume in volumes.volumes:
        if volume.claim_name:
            claim = client.V1PersistentVolumeClaimVolumeSource(claim_name=volume.claim_name)
            made.append(client.V1Volume(name=volume.name, persistent_volume_claim=claim))
        else:
            path = client.V1HostPathVolumeSource(path=volume.host_path, type=volume.host_path_type or None)
            made.append(client.V1Volume(name=volume.name, host_path=path))
    return made


def pod_mounts(config: JobConfig, name: str, volumes: Volumes) -> list[client.V1VolumeMount]:
    """Return the mounts of the container of the pod `name`."""
    made = [
        client.V1VolumeMount(name=scratch, mount_path=path)
        for scratch, path in scratch_folders(config, volumes).items()
    ]
    if config.transport_security != "none":
        is_read_only = True if name != MASTER else None  # the master makes the keys
        made.append(client.V1VolumeMount(name="keys", mount_path=KEYS_DIR, read_only=is_read_only))
    return made + [
        client.V1VolumeMount(name=mount.volume, mount_path=mount.mount_path, sub_path=mount.sub_path or None)
        for mount in volumes.mounts
    ]

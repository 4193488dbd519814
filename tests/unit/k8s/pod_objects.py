"""The objects of a job on a cluster, as plain dictionaries, for many settings."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import kubernetes_validate

from edlz.k8s.cluster.manifest import to_plain
from edlz.k8s.objects.job_objects import keys_secret, ps_service
from edlz.k8s.objects.pods import Owner, master_pod, service_pod, settings_in_pods
from edlz.services.configuration.job_config import MAX_JOB_NAME, JobConfig

__all__ = [
    "ADDRESS",
    "OWNER",
    "VERSIONS",
    "all_objects",
    "container",
    "job",
    "master",
    "mounts",
    "pod",
    "variables",
]

VERSIONS = [f"1.{minor}" for minor in range(28, int(kubernetes_validate.latest_version().split(".")[1]) + 1)]
OWNER = Owner("elasticdl-mnist-master", "6f3c5d1e-0000-4000-8000-000000000000")
ADDRESS = "10.1.2.3:50001"


def job(**changes: Any) -> JobConfig:
    settings = {
        "job_name": "mnist",
        "model_def": "mnist.mnist_functional_api.custom_model",
        "training_data": "/data/mnist/train",
        "image_name": "edlz:mnist",
        "volume": "host_path=/data,mount_path=/data",
        **changes,
    }
    return JobConfig(**settings)


def master(**changes: Any) -> dict[str, Any]:
    return dict(to_plain(master_pod(job(**changes), "edlz:mnist")))


def pod(name: str, memory: str | None = None, **changes: Any) -> dict[str, Any]:
    config = settings_in_pods(job(**changes), "edlz:mnist")
    made = service_pod(config, name, owner=OWNER, master_addr=ADDRESS, memory=memory, environ={"NCCL_A": "1"})
    return dict(to_plain(made))


def container(plain: dict[str, Any]) -> dict[str, Any]:
    (only,) = plain["spec"]["containers"]
    return dict(only)


def variables(plain: dict[str, Any]) -> dict[str, str]:
    return {
        variable["name"]: variable.get("value") or variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in container(plain)["env"]
    }


def mounts(plain: dict[str, Any]) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container(plain)["volumeMounts"]}


def all_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Give every kind of object for many settings."""
    resources = ("cpu=1,memory=4096Mi", "cpu=500m,memory=1.5G,disk=5G,gpu=1")
    volumes = (
        "",
        "host_path=/data,mount_path=/data",
        "claim_name=c,mount_path=/a,sub_path=x;claim_name=c,mount_path=/b,volume_name=v;host_path=/h,"
        "type=Directory,mount_path=/var/lib/edlz",
    )
    more: tuple[dict[str, Any], ...] = (
        {},
        {"transport_security": "none", "log_file_path": "/logs/$(MY_POD_NAME).log", "namespace": "research"},
        {
            "envs": "A=1,2,B=1e3",
            "populate_env_names": "NCCL_.*",
            "checkpoint_dir": "/ckpt",
            "worker_pod_priority": "high=0.5",
            "master_pod_priority": "high-priority",
            "worker_image": "registry.example.com:5000/team/edlz:worker",
            "image_pull_policy": "Never",
            "restart_policy": "Never",
            "job_name": "a" * MAX_JOB_NAME,
        },
    )
    for resource, volume, changes in product(resources, volumes, more):
        settings = {"worker_resource_request": resource, "volume": volume, **changes}
        config = settings_in_pods(job(**settings), "edlz:mnist")
        yield "master", master(**settings)
        for name in ("ps-0", "worker-0", "worker-99999"):
            yield name, pod(name, **settings)
        yield "worker-1", pod("worker-1", memory="6144Mi", **settings)
        yield "service", to_plain(ps_service(config, 0, OWNER))
        yield "secret", to_plain(keys_secret(config, {"server.key": b"\x00k"}, OWNER))

"""What is submitted to an emulated API server: flags of a job, and the claim on which its data lie."""

from typing import Any

from tests.k8s.played import PlayedCluster

FLAGS = [
    "train",
    "--model_def=mnist.mnist_functional_api.custom_model",
    "--training_data=/data/mnist/train",
    "--validation_data=/data/mnist/test",
    "--image_name=edlz:mnist",
    "--num_workers=4",
    "--job_name=test-mnist",
]
ON_CLAIM = ["--volume=claim_name=mnist,mount_path=/data", "--job_dir=/data/jobs/test-mnist"]


def add_claim(cluster: PlayedCluster, name: str, phase: str = "Bound") -> None:
    amounts = {"requests": {"storage": "1Gi"}}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": amounts},
    }
    cluster.store.create("persistentvolumeclaims", body, "research")
    cluster.store.patch(
        "persistentvolumeclaims", name, {"status": {"phase": phase}}, "research", subresource="status"
    )


def pods(cluster: PlayedCluster) -> list[dict[str, Any]]:
    return cluster.store.list("pods", "research")

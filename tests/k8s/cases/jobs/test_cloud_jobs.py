"""Jobs on a cluster of three machines: an image for each job, data on a claim, lost workers, two priorities."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edlz.k8s.cluster.names import pod_name
from tests.docker_daemon import fake_daemon
from tests.k8s.any_cluster import make_claim
from tests.k8s.cluster import TestCluster
from tests.k8s.command_line import MODELS, Shell, check_ledger, grant, told

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")
pytest.importorskip("docker")
pytestmark = [pytest.mark.fault, pytest.mark.slow]

REGISTRY = "gcr.io/a-project"
EXAMPLE = shlex.split(f"""
--model_def=elasticdl/python/examples/mnist_subclass
--training_data_dir=/data/mnist_nfs/mnist/train
--evaluation_data_dir=/data/mnist_nfs/mnist/test
--minibatch_size=10
--records_per_task=100
--checkpoint_steps=2
--grads_to_wait=2
--volume=volume_name=data-volume,mount_path=/data,claim_name=fileserver-claim
--log_level=INFO
--docker_image_prefix={REGISTRY}
""")
RESOURCES = shlex.split("""
--master_pod_priority=high-priority
--master_resource_request=cpu=1,memory=1024Mi
--master_resource_limit=cpu=1,memory=1024Mi
--worker_resource_request=cpu=3,memory=4096Mi
--worker_resource_limit=cpu=3,memory=4096Mi
""")


class Cloud(Shell):
    """Three machines, a claim with MNIST on it, and a Docker daemon here whose pushes they can pull."""

    def submit(self, job: str, *arguments: str) -> str:
        """Submit a job; return its image."""
        contents = {"/model/mnist_subclass": self.folder / "elasticdl/python/examples/mnist_subclass"}
        return self.train_in_built_image(contents, f"--job_name={job}", *EXAMPLE, *arguments)


@pytest.fixture
def cloud(emulated_cluster: TestCluster, small_mnist: Path, tmp_path: Path) -> Iterator[Cloud]:
    for name in ("node-a", "node-b", "node-c"):
        emulated_cluster.add_node(name, cpu="4", memory="15Gi")
    grant(emulated_cluster, "edlz-rbac.yaml", "priority-classes.yaml")
    emulated_cluster.create("persistentvolumeclaims", make_claim("fileserver-claim"))
    shutil.copytree(small_mnist, emulated_cluster.claim_folder("fileserver-claim") / "mnist_nfs" / "mnist")
    with fake_daemon() as daemon:
        daemon.add("edlz:0.1.0")
        cloud = Cloud(emulated_cluster, tmp_path / "here", daemon)
        example = cloud.folder / "elasticdl/python/examples/mnist_subclass"
        example.mkdir(parents=True)
        shutil.copy(MODELS / "mnist" / "mnist_subclass.py", example)
        yield cloud


def test_a_job_that_loses_a_worker_ends_as_one_that_does_not(cloud: Cloud) -> None:
    shape = ("--num_epochs=4", "--num_workers=2")
    image = cloud.submit("hello-world", *shape)
    assert image.startswith(f"{REGISTRY}/edlz:hello-world-")
    undisturbed = cloud.wait_for_end("hello-world")
    check_ledger(undisturbed)
    found = cloud.cluster.list("pods", "elasticdl_job_name=hello-world")
    assert [pod["spec"]["containers"][0]["image"] for pod in found] == [image]
    cloud.edlz("rm", "hello-world")

    cloud.submit("fault-tolerance", *shape)
    cloud.wait_for_training("fault-tolerance", workers=2, minibatches=40)
    if cloud.has_kubectl:
        cloud.kubectl("delete", "pod", "elasticdl-fault-tolerance-worker-0", "--wait=false")
    else:
        cloud.cluster.delete("pods", "elasticdl-fault-tolerance-worker-0")
    cloud.wait_for(
        "two workers again",
        lambda: cloud.pods("fault-tolerance", role="worker") == ["worker-1", "worker-2"],
    )
    status = cloud.wait_for_end("fault-tolerance")
    check_ledger(status)
    assert status["job"]["digest"] == undisturbed["job"]["digest"]
    told(status, "worker-0 lost: its pod was deleted.")
    told(status, "worker-2 starts in its place.")


def test_a_job_gives_way_to_one_of_higher_priority_and_gets_its_room_back(cloud: Cloud) -> None:
    low, high = "low-prio-job", "high-prio-job"
    cloud.submit(low, *RESOURCES, "--worker_pod_priority=low-priority", "--num_epochs=40", "--num_workers=2")
    cloud.wait_for_training(low, workers=2)
    assert sorted(cloud.pods(low, "Running")) == ["master", "ps-0", "worker-0", "worker-1"]
    preempted = _watch_preemptions(cloud)

    cloud.submit(high, *RESOURCES, "--worker_pod_priority=high-priority", "--num_epochs=1", "--num_workers=1")
    cloud.wait_for("a preempted pod", lambda: preempted)
    cloud.wait_for_training(high)
    assert cloud.pods(high, "Running", "worker") == ["worker-0"]
    (running,) = cloud.pods(low, "Running", "worker")
    (waiting,) = cloud.pods(low, "Pending", "worker")
    assert waiting == "worker-2"
    cloud.wait_for(
        "a note on the worker that waits",
        lambda: any("Insufficient cpu" in each.note for each in cloud.note(low).workers),
    )
    check_ledger(cloud.wait_for_end(high))

    cloud.wait_for("a second worker", lambda: cloud.pods(low, "Running", "worker") == [running, waiting])
    cloud.wait_for_training(low, workers=2)
    status = cloud.wait_for_end(low)
    check_ledger(status)
    assert status["job"]["digest"]
    (victim,) = preempted
    assert victim in {pod_name(low, "worker-0"), pod_name(low, "worker-1")}
    lost = victim.removeprefix(pod_name(low, ""))
    told(status, f"{lost} lost: preempted: a pod of higher priority needs its place.")
    told(status, "worker-2 training after")
    reasons = {one["reason"]: one["message"] for one in cloud.cluster.events(victim)}
    assert "Preempted by pod" in reasons["Preempted"]


def _watch_preemptions(cloud: Cloud) -> set[str]:
    """Return a set that every pod joins that the scheduler takes away."""
    found: set[str] = set()

    def on_change(change: Any) -> None:
        conditions = ((change.after or {}).get("status") or {}).get("conditions") or ()
        if change.resource == "pods" and "PreemptionByScheduler" in {one.get("reason") for one in conditions}:
            found.add(change.after["metadata"]["name"])

    cloud.cluster.store.subscribe(on_change)
    return found

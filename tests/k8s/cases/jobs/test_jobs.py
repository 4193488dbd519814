"""Whole jobs as pods: the master's process makes them, loses some, comes back, and leaves in order."""

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

import edlz.k8s
from edlz.k8s.cluster import manifest
from edlz.k8s.cluster.names import STATUS, pod_name, selector
from edlz.k8s.objects.pods import master_pod
from edlz.k8s.pods.log_folder import LogFolder
from edlz.services.configuration.job_config import JobConfig
from edlz.services.protocol import named_status
from edlz.services.protocol.job_status import JobStatus
from tests.k8s.any_cluster import wait_for
from tests.k8s.cluster import TestCluster

pytestmark = [pytest.mark.fault, pytest.mark.slow]

JOB = "mnist"
MASTER = pod_name(JOB, "master")
LIMIT_S = 400.0


class Submitted:
    """A job that was submitted, seen as `kubectl` sees it."""

    def __init__(self, cluster: TestCluster, data: Path, cpu: str = "0.5", **settings: Any) -> None:
        self.cluster = cluster
        kept = data.parent / "kept"  # master and parameter servers have to see the same checkpoints
        kept.mkdir(exist_ok=True)
        kept.chmod(0o777)  # pods run as a user of their own
        self.config = JobConfig(
            job_name=JOB,
            image_name=cluster.image,
            namespace=cluster.namespace,
            model_def="mnist.mnist_functional_api.custom_model",
            training_data="/data/mnist/train",
            volume=f"host_path={data},mount_path=/data/mnist;host_path={kept},mount_path=/kept",
            checkpoint_dir="/kept/checkpoints",
            worker_threads=1,
            worker_resource_request=f"cpu={cpu},memory=1024Mi",
            ps_resource_request="cpu=0.2,memory=512Mi",
            image_pull_policy="IfNotPresent",
            **settings,
        )
        cluster.create("pods", manifest.to_plain(master_pod(self.config, cluster.image)))

    def master(self) -> dict[str, Any]:
        found = self.cluster.find("pods", MASTER)
        assert found is not None, "there is no master pod"
        return found

    def status(self) -> JobStatus | None:
        text = self.master()["metadata"].get("annotations", {}).get(STATUS)
        return named_status.decode(text) if text else None

    def annotate(self, **annotations: str) -> None:
        patch = {"metadata": {"annotations": {f"edlz.io/{name}": text for name, text in annotations.items()}}}
        self.cluster.store.patch("pods", MASTER, patch, self.cluster.namespace)

    def others(self) -> list[str]:
        found = self.cluster.list("pods", selector(JOB))
        return [each["metadata"]["name"] for each in found if each["metadata"]["name"] != MASTER]

    def wait(self, what: str, condition: Any) -> None:
        try:
            wait_for(condition, what, LIMIT_S)
        except AssertionError:
            for name in (MASTER, *self.others()):
                print(f"--- {name}\n{self.cluster.log(name)[-4000:]}")
            raise

    def wait_for_training(self, minibatches: int = 1) -> None:
        self.wait("training", lambda: (s := self.status()) and s.minibatches >= minibatches)

    def wait_for_end(self, phase: str) -> JobStatus:
        self.wait(f"the master pod {phase}", lambda: self.master()["status"]["phase"] == phase)
        status = self.status()
        assert status is not None
        return status


@pytest.fixture
def nodes(emulated_cluster: TestCluster) -> TestCluster:
    for name in ("node-a", "node-b"):
        emulated_cluster.add_node(name)
    rights = Path(edlz.k8s.__path__[0]) / "manifests" / "edlz-rbac.yaml"
    for obj in yaml.safe_load_all(rights.read_text()):
        emulated_cluster.create(f"{obj['kind'].lower()}s", obj)
    return emulated_cluster


def test_a_job_lives_through_losses_and_leaves_in_order(nodes: TestCluster, small_mnist: Path) -> None:
    on_volume = {"job_dir": "/kept/job"}  # which all pods of the job mount
    job = Submitted(nodes, small_mnist, num_workers=2, num_ps_pods=1, num_epochs=30, **on_volume)
    job.wait_for_training()
    nodes.delete("pods", pod_name(JOB, "worker-0"), grace_s=1)
    job.wait("a worker in its place", lambda: pod_name(JOB, "worker-2") in job.others())
    nodes.kill_container(MASTER, signal.SIGKILL)
    job.wait(
        "the master's second life",
        lambda: job.master()["status"]["containerStatuses"][0]["restartCount"] == 1,
    )
    status = job.wait_for_end("Succeeded")
    assert (status.state, status.records) == ("Succeeded", status.records_total)
    assert job.master()["metadata"]["labels"]["status"] == "Finished"
    assert job.others() == []
    assert nodes.list("services", selector(JOB)) == nodes.list("secrets", selector(JOB)) == []
    for partition in status.partitions:
        assert (partition.missing, partition.doubled) == (0, 0)
    kept = small_mnist.parent / "kept"
    assert list(kept.rglob("journal.sqlite"))
    assert not list(kept.rglob("*.key"))
    logs = {log.name: log for log in LogFolder(kept / "job" / "pods").logs()}
    assert {"worker-0", "worker-1", "worker-2", "ps-0"} <= logs.keys()
    assert "Starting worker: 0" in logs["worker-0"].text


def test_a_finished_model_is_exported_from_a_checkpoint(nodes: TestCluster, small_mnist: Path) -> None:
    """The worker sees the volumes, and not the folder of the parameter server's pod."""
    on_volume = {"output": "/kept/out/mnist", "output_format": "saved_model,safetensors"}
    job = Submitted(nodes, small_mnist, num_workers=1, num_ps_pods=1, **on_volume)
    status = job.wait_for_end("Succeeded")
    kept = small_mnist.parent / "kept"
    assert status.exported is not None
    assert (status.exported.place, status.checkpoint) == ("/kept/out/mnist/1", status.version)
    assert (kept / "checkpoints" / f"version-{status.version}").is_dir()
    assert {entry.name for entry in (kept / "out" / "mnist" / "1").iterdir()} > {
        "saved_model.pb",
        "safetensors",
    }


def test_scaling_and_stopping_by_annotation(nodes: TestCluster, small_mnist: Path) -> None:
    job = Submitted(nodes, small_mnist, num_workers=1, num_ps_pods=1, num_epochs=50)
    job.wait_for_training()
    job.annotate(workers="2")
    job.wait("a second worker", lambda: pod_name(JOB, "worker-1") in job.others())
    job.annotate(stop="save")
    status = job.wait_for_end("Succeeded")
    assert (status.state, job.others()) == ("Stopped", [])
    assert status.checkpoint is not None


def test_a_job_that_cannot_run_says_why_and_fails(nodes: TestCluster, small_mnist: Path) -> None:
    nothing = small_mnist.parent / "nothing"
    nothing.mkdir(exist_ok=True)
    job = Submitted(nodes, nothing, num_workers=1, num_ps_pods=1)
    job.wait("the reason", lambda: (s := job.status()) and s.state == "Failed")
    status = job.status()
    assert status is not None
    assert status.failure is not None
    assert "/data/mnist/train" in status.failure.text
    assert job.master()["metadata"]["labels"]["status"] == "Finished"


def test_a_worker_without_room_says_so(nodes: TestCluster, small_mnist: Path) -> None:
    job = Submitted(nodes, small_mnist, cpu="32", num_workers=1, num_ps_pods=1)
    job.wait("a note", lambda: (s := job.status()) and any(worker.note for worker in s.workers))
    status = job.status()
    assert status is not None
    (worker,) = status.workers
    assert (worker.id, worker.state) == ("0", "starting")
    assert worker.note == "Pending: 0/2 nodes: Insufficient cpu"


def test_deleting_the_master_pod_takes_everything_away(nodes: TestCluster, small_mnist: Path) -> None:
    job = Submitted(nodes, small_mnist, num_workers=1, num_ps_pods=1, num_epochs=50)
    job.wait("its pods", lambda: len(job.others()) == 2)
    nodes.delete("pods", MASTER)
    job_is_gone = lambda: not nodes.list("pods", selector(JOB))  # noqa: E731
    wait_for(job_is_gone, "all pods gone", LIMIT_S)
    wait_for(lambda: not nodes.list("secrets", selector(JOB)), "the secret gone", LIMIT_S)

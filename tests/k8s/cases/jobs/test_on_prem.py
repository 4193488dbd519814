"""A job on a cluster with rules of its own: a namespace, tainted nodes, labels; images built here, or taken as they are."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_daemon import FakeDaemon, fake_daemon
from tests.k8s.cluster import TestCluster
from tests.k8s.command_line import MODELS, Shell, check_ledger, grant

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")
pytest.importorskip("docker")

SPEC = """
from kubernetes import client

class MyCluster:
    def __init__(self):
        self._pool = "elasticdl"
        self._app_name = "elasticdl"

    # Add pod specifications
    def with_pod(self, pod):
        # Add a label
        pod.metadata.labels["my_app"] = self._app_name

        # Add tolerations
        tolerations = [
            client.V1Toleration(
                effect="NoSchedule",
                key="mycluster.com/app-pool",
                operator="Equal",
                value=self._pool ,
            ),
        ]
        pod.spec.tolerations = tolerations
        return pod

    # Add service specifications
    def with_service(self, service):
        # Use ClusterIP
        service.spec.type = "ClusterIP"
        service.spec.cluster_ip = "None"
        return service

cluster = MyCluster()
"""
COMMON = shlex.split("""
--model_def=mnist_functional_api.mnist_functional_api.custom_model
--training_data=/data/mnist/train
--validation_data=/data/mnist/test
--num_epochs=2
--master_resource_request=cpu=1,memory=2048Mi,ephemeral-storage=5000Mi
--worker_resource_request=cpu=1,memory=2048Mi,ephemeral-storage=5000Mi
--minibatch_size=64
--num_minibatches_per_task=2
--num_workers=2
--checkpoint_steps=10
--grads_to_wait=2
--job_name=test-mnist
--log_level=INFO
--image_pull_policy=Always
--namespace=kubemaker
--cluster_spec=spec.py
""")
READY_MADE = "reg.docker.com/user/elasticdl:mnist"
TOLERATION = {
    "effect": "NoSchedule",
    "key": "mycluster.com/app-pool",
    "operator": "Equal",
    "value": "elasticdl",
}
JOB = "test-mnist"


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with fake_daemon() as made:
        yield made


@pytest.fixture
def on_prem(emulated_cluster: TestCluster, daemon: FakeDaemon, tmp_path: Path) -> Shell:
    """Two nodes that only tolerant pods may use, a namespace, a zoo and a spec in the working directory."""
    emulated_cluster.kubeconfig.touch()  # its context is "default"
    taint = {"key": "mycluster.com/app-pool", "value": "elasticdl", "effect": "NoSchedule"}
    for name in ("node-a", "node-b"):
        emulated_cluster.add_node(name, taints=[taint])
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubemaker"}}
    emulated_cluster.store.create("namespaces", body)
    emulated_cluster.namespace = "kubemaker"
    grant(emulated_cluster)
    shell = Shell(emulated_cluster, tmp_path / "here", daemon)
    zoo = shell.folder / "model_zoo" / "mnist_functional_api"
    zoo.mkdir(parents=True)
    shutil.copy(MODELS / "mnist" / "mnist_functional_api.py", zoo)
    (shell.folder / "spec.py").write_text(SPEC)
    return shell


def contents(shell: Shell, data: Path) -> dict[str, Path]:
    """What the job's image has: the zoo and the data."""
    return {"/model_zoo": shell.folder / "model_zoo", "/data/mnist": data}


def check_objects(shell: Shell) -> None:
    """The cluster's own wishes are on every object of the job."""
    cluster = shell.cluster
    pods = shell.wait_for(
        "four pods", lambda: len(found := cluster.list("pods", f"elasticdl-job-name={JOB}")) == 4 and found
    )
    for pod in pods:
        assert pod["metadata"]["namespace"] == "kubemaker"
        assert pod["metadata"]["labels"]["my_app"] == "elasticdl"
        assert TOLERATION in pod["spec"]["tolerations"]
    (service,) = cluster.list("services", f"elasticdl-job-name={JOB}")
    assert (service["spec"]["type"], service["spec"]["clusterIP"]) == ("ClusterIP", "None")
    for name in ("master", "worker-0"):
        resources = shell.pod(JOB, name)["spec"]["containers"][0]["resources"]
        assert resources["requests"] == {"cpu": "1", "memory": "2048Mi", "ephemeral-storage": "5000Mi"}


@pytest.mark.slow
def test_an_image_is_built_for_the_job_and_the_spec_changes_its_objects(
    on_prem: Shell, daemon: FakeDaemon, small_mnist: Path
) -> None:
    flags = (
        "--image_base=elasticdl:ci",
        "--docker_image_prefix=reg.docker.com/user/",
        "--model_zoo=./model_zoo",
    )
    image = on_prem.train_in_built_image(contents(on_prem, small_mnist), *flags, *COMMON)
    assert image.startswith("reg.docker.com/user/edlz:test-mnist-")
    ((_, files),) = daemon.builds
    assert "FROM elasticdl:ci" in files["Dockerfile"].splitlines()
    assert files["model_zoo/mnist_functional_api/mnist_functional_api.py"]
    check_objects(on_prem)
    check_ledger(on_prem.wait_for_end(JOB))


def test_an_image_with_the_zoo_in_it_is_taken_as_it_is(
    on_prem: Shell, daemon: FakeDaemon, small_mnist: Path
) -> None:
    cluster = on_prem.cluster
    cluster.images.add(READY_MADE, contents=contents(on_prem, small_mnist))
    on_prem.edlz("train", f"--image_base={READY_MADE}", "--model_zoo=/model_zoo", *COMMON)
    assert daemon.builds == daemon.pushes == []
    check_objects(on_prem)
    for name in ("master", "ps-0", "worker-0", "worker-1"):
        (container,) = on_prem.pod(JOB, name)["spec"]["containers"]
        assert (container["image"], container["imagePullPolicy"]) == (READY_MADE, "Always")
    assert "--model_zoo=/model_zoo" in on_prem.pod(JOB, "master")["spec"]["containers"][0]["command"]
    on_prem.edlz("stop", JOB, "--now")
    on_prem.wait_for("all gone", lambda: not cluster.list("pods") and not cluster.list("services"))

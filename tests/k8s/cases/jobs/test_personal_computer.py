"""MNIST on the one node of a personal computer: built image, data mounted from the host, looked at with kubectl."""

import re
import shlex
from pathlib import Path

import pytest

from edlz.k8s.cluster.names import pod_name, selector
from tests.k8s.cluster import TestCluster
from tests.k8s.command_line import MODELS, Shell, check_ledger, grant

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

PARAMETER_SERVER = shlex.split("""
--image_name=elasticdl:mnist_ps
--model_zoo=model_zoo
--model_def=mnist.mnist_functional_api.custom_model
--training_data=/data/mnist/train
--validation_data=/data/mnist/test
--num_epochs=2
--master_resource_request=cpu=0.2,memory=1024Mi
--master_resource_limit=cpu=1,memory=2048Mi
--worker_resource_request=cpu=0.4,memory=1024Mi
--worker_resource_limit=cpu=1,memory=2048Mi
--ps_resource_request=cpu=0.2,memory=1024Mi
--ps_resource_limit=cpu=1,memory=2048Mi
--minibatch_size=32
--num_minibatches_per_task=2
--num_ps_pods=1
--num_workers=1
--evaluation_steps=50
--job_name=test-mnist
--image_pull_policy=Never
--distribution_strategy=ParameterServerStrategy
""")
ALLREDUCE = shlex.split("""
--image_name=elasticdl:mnist_allreduce
--model_zoo=model_zoo
--model_def=mnist.mnist_functional_api.custom_model
--training_data=/data/mnist/train
--num_epochs=1
--master_resource_request=cpu=0.2,memory=1024Mi
--master_resource_limit=cpu=1,memory=2048Mi
--worker_resource_request=cpu=0.4,memory=1024Mi
--worker_resource_limit=cpu=1,memory=2048Mi
--minibatch_size=64
--num_minibatches_per_task=2
--num_workers=2
--job_name=test-mnist-allreduce
--image_pull_policy=Never
--distribution_strategy=AllreduceStrategy
""")
JOB = "test-mnist"


@pytest.fixture
def minikube(emulated_cluster: TestCluster, tmp_path: Path) -> Shell:
    """Two cores, 6 GB, the image on the node, and a zoo in the working directory."""
    emulated_cluster.add_node("minikube", cpu="2", memory="6144Mi")
    grant(emulated_cluster)
    contents = {"/model_zoo": MODELS}
    for image in ("elasticdl:mnist_ps", "elasticdl:mnist_allreduce"):
        emulated_cluster.images.add(image, is_local=True, contents=contents)
    shell = Shell(emulated_cluster, tmp_path / "here")
    (shell.folder / "model_zoo").symlink_to(MODELS)
    return shell


def test_mnist_with_a_parameter_server(minikube: Shell, small_mnist: Path) -> None:
    cluster = minikube.cluster
    volume = f"--volume=host_path={small_mnist},mount_path=/data/mnist"
    printed = minikube.edlz("train", *PARAMETER_SERVER, volume).out
    assert f"Submitted {JOB}." in printed

    for key in ("elasticdl-job-name", "elasticdl_job_name"):
        minikube.wait_for(
            f"three pods with {key}={JOB}",
            lambda key=key: (
                sorted(pod["metadata"]["name"] for pod in cluster.list("pods", f"{key}={JOB}"))
                == [f"elasticdl-{JOB}-master", f"elasticdl-{JOB}-ps-0", f"elasticdl-{JOB}-worker-0"]
            ),
        )
        if minikube.has_kubectl:
            listed = minikube.kubectl("get", "pods", "-l", f"{key}={JOB}", "-o", "name").split()
            assert listed == [f"pod/elasticdl-{JOB}-{name}" for name in ("master", "ps-0", "worker-0")]
    for role in ("master", "ps", "worker"):
        found = cluster.list("pods", f"elasticdl-job-name={JOB},elasticdl-replica-type={role}")
        assert [pod["metadata"]["labels"]["elasticdl-replica-index"] for pod in found] == ["0"]
    worker = minikube.pod(JOB, "worker-0")["spec"]["containers"][0]
    assert worker["resources"] == {
        "requests": {"cpu": "0.4", "memory": "1024Mi"},
        "limits": {"cpu": "1", "memory": "2048Mi"},
    }

    status = minikube.wait_for_end(JOB)
    check_ledger(status)
    assert minikube.pod(JOB, "master")["metadata"]["labels"]["status"] == "Finished"
    log = cluster.log(pod_name(JOB, "master"))
    if minikube.has_kubectl:
        assert minikube.kubectl("logs", pod_name(JOB, "master")) == log
    said = [line for line in log.splitlines() if "Evaluation" in line]
    assert "Evaluation service started" in said[0]
    assert re.search(r"Evaluation metrics\[v=50\]: \{'accuracy': 0\.\d+\}", "\n".join(said))
    assert "Evaluation service stopped" in said[-1]


@pytest.mark.slow
def test_mnist_without_parameter_servers(minikube: Shell, small_mnist: Path) -> None:
    """The pods share no folder but the data's: nothing is written to go on from, and nobody complains of that."""
    cluster, job = minikube.cluster, "test-mnist-allreduce"
    volume = f"--volume=host_path={small_mnist},mount_path=/data/mnist"
    assert f"Submitted {job}." in minikube.edlz("train", *ALLREDUCE, volume).out

    names = [f"elasticdl-{job}-{name}" for name in ("master", "worker-0", "worker-1")]
    minikube.wait_for(
        "a master, two workers, and no other pod",
        lambda: sorted(pod["metadata"]["name"] for pod in cluster.list("pods", selector(job))) == names,
    )
    minikube.wait_for("keys", lambda: cluster.list("secrets", selector(job)))
    (secret,) = cluster.list("secrets", selector(job))
    assert set(secret["data"]) == {"public.json", "worker.key"}
    assert cluster.list("services", selector(job)) == []

    status = minikube.wait_for_end(job)
    assert (status["ps"], status["job"]["strategy"]) == ([], "AllreduceStrategy")
    note = minikube.note(job)
    assert note is not None
    assert [(part.expected, part.applied, part.missing, part.doubled) for part in note.partitions] == [
        (20, 20, 0, 0)
    ]
    log = cluster.log(names[0])
    assert "the model is on worker-0, worker-1." in log
    assert "WARNING" not in log

"""Whole jobs without parameter servers as pods: they lose pods, change their size and their strategy, and keep their bits."""

import shlex
import shutil
import signal
from pathlib import Path

import pytest

from edlz.k8s.cluster.names import pod_name
from tests.k8s.any_cluster import make_claim
from tests.k8s.cluster import TestCluster
from tests.k8s.command_line import MODELS, Shell, check_ledger, grant, told_last
from tests.processes import HandJob

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")
pytestmark = [pytest.mark.fault, pytest.mark.slow]

JOB = "mnist"
TRAINING = ("--minibatch_size=32", "--num_minibatches_per_task=2", "--grads_to_wait=2")
EPOCHS = 12
FLAGS = shlex.split("""
--model_def=mnist.mnist_functional_api.custom_model
--training_data=/data/mnist/train
--master_resource_request=cpu=0.1,memory=512Mi
--ps_resource_request=cpu=0.2,memory=512Mi
--worker_threads=1
--volume=claim_name=data,mount_path=/data
--distribution_strategy=AllreduceStrategy
""")
SMALL, LARGE = (f"--worker_resource_request=cpu={cpu},memory=1024Mi" for cpu in (1, 3))
ON_VOLUME = ("--job_dir=/data/jobs/mnist", "--recovery_snapshot_secs=1")


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory, small_mnist: Path) -> str:
    """Of the same job on this machine, with one worker and the parameters in its master."""
    model = f"--model_file={MODELS}/mnist/mnist_functional_api.py"
    flags = (
        *TRAINING,
        f"--num_epochs={EPOCHS}",
        model,
        f"--training_data={small_mnist}/train",
        "--worker_threads=1",
    )
    with HandJob(tmp_path_factory.mktemp("local"), *flags, partitions=0).start(1) as job:
        return job.finish().digest


@pytest.fixture
def desk(emulated_cluster: TestCluster, small_mnist: Path, tmp_path: Path) -> Shell:
    """Two nodes, and a claim with data on it."""
    grant(emulated_cluster)
    emulated_cluster.create("persistentvolumeclaims", make_claim("data"))
    shutil.copytree(small_mnist, emulated_cluster.claim_folder("data") / "mnist")
    for name in ("node-a", "node-b"):
        emulated_cluster.add_node(name)
    return Shell(emulated_cluster, tmp_path / "here")


def submit(desk: Shell, job: str, *more: str) -> None:
    desk.edlz("train", f"--image_name={desk.cluster.image}", f"--job_name={job}", *FLAGS, *more)


def start(desk: Shell, *more: str, size: str = SMALL, epochs: int = EPOCHS) -> None:
    """Submit the job, and wait until both workers have trained a little."""
    submit(desk, JOB, *TRAINING, f"--num_epochs={epochs}", "--num_workers=2", size, *more)
    desk.wait_for_training(JOB, workers=2, minibatches=10)


def check_end(desk: Shell, digest: str = "") -> None:
    status = desk.wait_for_end(JOB)
    note = desk.note(JOB)
    assert note is not None
    assert [(part.missing, part.doubled) for part in note.partitions] == [(0, 0)]
    assert status["progress"]["minibatches"] == status["progress"]["minibatches_total"]
    assert note.digest == (digest or note.digest) != ""


def test_it_loses_a_worker_and_its_master_and_is_scaled(desk: Shell, digest: str) -> None:
    start(desk, *ON_VOLUME)
    desk.cluster.delete("pods", pod_name(JOB, "worker-0"), grace_s=1)
    desk.wait_for("a worker in its place", lambda: "worker-2" in desk.pods(JOB, "Running"))
    desk.cluster.kill_container(pod_name(JOB, "master"), signal.SIGKILL)
    desk.wait_for(
        "the master's second life",
        lambda: desk.pod(JOB, "master")["status"]["containerStatuses"][0]["restartCount"] == 1,
    )
    assert desk.pods(JOB, role="ps") == []
    desk.edlz("scale", JOB, "--workers=3")
    desk.wait_for("a third worker", lambda: len(desk.pods(JOB, "Running", "worker")) == 3)
    desk.edlz("scale", JOB, "--workers=1")
    desk.wait_for("one worker left", lambda: len(desk.pods(JOB, role="worker")) <= 1)
    check_end(desk, digest)


def test_a_worker_gives_way_to_a_job_of_higher_priority_and_comes_back(desk: Shell) -> None:
    grant(desk.cluster, "priority-classes.yaml")
    start(desk, "--worker_pod_priority=low-priority", size=LARGE, epochs=60)  # one on each node
    submit(desk, "high", "--num_workers=1", LARGE, "--worker_pod_priority=high-priority", "--num_epochs=1")
    desk.wait_for("one worker that waits", lambda: desk.pods(JOB, "Pending", "worker") == ["worker-2"])
    assert len(desk.pods(JOB, "Running", "worker")) == 1
    desk.wait_for_end("high")
    desk.wait_for_training(JOB, workers=2)
    check_end(desk)


def test_where_pods_share_no_folder_all_of_them_are_lost(desk: Shell, digest: str) -> None:
    """The job begins anew, says so, and has the same bits."""
    start(desk)
    for name in ("worker-0", "worker-1"):
        desk.cluster.kill_container(pod_name(JOB, name), signal.SIGKILL)
    check_end(desk, digest)
    told_last(desk.status(JOB), "training goes back to v")


def test_it_is_stopped_and_resumed_with_a_parameter_server(desk: Shell, digest: str) -> None:
    start(desk, *ON_VOLUME)
    desk.edlz("stop", JOB)
    desk.wait_for_end(JOB, "Stopped")
    desk.edlz("resume", JOB, "--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=1")
    desk.wait_for("a parameter server", lambda: "ps-0" in desk.pods(JOB, "Running"))
    check_end(desk, digest)
    check_ledger(desk.status(JOB))
    assert "training begins at v0" not in told_last(desk.status(JOB), "training begins at v")

"""Whole jobs that lose their master, nodes, memory or the sight of the cluster, and end well; the same by a manifest."""

import json
import re
import shlex
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.processes import is_complete
from edlz.k8s.cluster.names import CONFIG, pod_name, selector
from edlz.k8s.container_end import read_mark
from tests.k8s.any_cluster import make_claim
from tests.k8s.cluster import TestCluster
from tests.k8s.command_line import ENDED, JOB_S, Shell, check_ledger, grant, told, told_last

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")
pytestmark = [pytest.mark.fault, pytest.mark.slow]

JOB = "mnist"
MASTER = pod_name(JOB, "master")
FLAGS = shlex.split("""
--model_def=mnist.mnist_functional_api.custom_model
--training_data=/data/mnist/train
--minibatch_size=32
--num_minibatches_per_task=2
--master_resource_request=cpu=0.1,memory=512Mi
--worker_resource_request=cpu=1,memory=1024Mi
--ps_resource_request=cpu=0.2,memory=512Mi
--volume=claim_name=data,mount_path=/data
--job_name=mnist
""")


@pytest.fixture
def shell(emulated_cluster: TestCluster, small_mnist: Path, tmp_path: Path) -> Shell:
    """A claim with data on it; no nodes yet."""
    grant(emulated_cluster)
    emulated_cluster.create("persistentvolumeclaims", make_claim("data"))
    shutil.copytree(small_mnist, emulated_cluster.claim_folder("data") / "mnist")
    return Shell(emulated_cluster, tmp_path / "here")


@pytest.fixture
def desk(shell: Shell) -> Shell:
    """The same with two nodes."""
    for name in ("node-a", "node-b"):
        shell.cluster.add_node(name)
    return shell


def flags(shell: Shell, *more: str) -> list[str]:
    return [f"--image_name={shell.cluster.image}", *FLAGS, *more]


# ---------------------------------------------------------------- the master


def test_a_master_that_is_killed_goes_on_from_its_journal_and_nothing_is_computed_again(desk: Shell) -> None:
    logs = "--log_file_path=/data/logs/$(MY_POD_NAME).log"
    desk.edlz("train", *flags(desk, "--num_workers=1", "--num_epochs=10", "--log_loss_steps=1", logs))
    desk.wait_for_training(JOB, minibatches=20)
    before = {name: desk.pod(JOB, name)["metadata"]["uid"] for name in ("ps-0", "worker-0")}

    desk.cluster.kill_container(MASTER, signal.SIGKILL)
    desk.wait_for(
        "the master's second life",
        lambda: desk.pod(JOB, "master")["status"]["containerStatuses"][0]["restartCount"] == 1,
    )
    note = desk.note(JOB)
    assert note is not None
    assert note.state == "Training", "it was over before its master was killed"
    desk.wait_for("more training", lambda: (now := desk.note(JOB)) and now.minibatches > note.minibatches)
    assert {name: desk.pod(JOB, name)["metadata"]["uid"] for name in before} == before

    status = desk.wait_for_end(JOB)
    check_ledger(status)
    computed = (desk.cluster.claim_folder("data") / "logs" / f"{pod_name(JOB, 'worker-0')}.log").read_text()
    steps = [int(found) for found in re.findall(r"Loss = \S+, steps = (\d+)", computed)]
    assert steps == list(range(1, status["progress"]["version"]))  # the last one is told to nobody


def test_a_master_that_is_killed_when_its_job_is_complete_only_says_so(desk: Shell) -> None:
    """It has journalled that, and has neither said so nor written the mark that keeps its next life from the job."""
    created, folder = _creations(desk), desk.cluster.claim_folder("data") / "jobs" / JOB
    more = ("--num_workers=1", "--num_epochs=2", "--job_dir=/data/jobs/mnist")
    desk.edlz("train", *flags(desk, *more))
    desk.wait_for_training(JOB)
    uid = desk.pod(JOB, "master")["metadata"]["uid"]

    deadline_s = time.monotonic() + JOB_S
    while not is_complete(folder):
        assert time.monotonic() < deadline_s, desk.cluster.log(MASTER)
        time.sleep(0.005)
    desk.cluster.kill_container(MASTER, signal.SIGKILL)
    assert read_mark(folder, uid) is None, "the master was quicker than its end"

    status = desk.wait_for_end(JOB)
    check_ledger(status)
    assert desk.pod(JOB, "master")["status"]["containerStatuses"][0]["restartCount"] == 1
    assert "training begins" not in desk.cluster.log(MASTER)
    mark = read_mark(folder, uid)
    assert mark is not None
    assert (mark[0], mark[1].digest) == (0, status["job"]["digest"])
    assert created == {pod_name(JOB, name): 1 for name in ("master", "ps-0", "worker-0")}


def _creations(shell: Shell) -> Counter[str]:
    """Return what is going to count how often each pod is created."""
    created = Counter[str]()

    def on_change(change: Any) -> None:
        if (change.resource, change.kind) == ("pods", "ADDED"):
            created[change.after["metadata"]["name"]] += 1

    shell.cluster.store.subscribe(on_change)
    return created


def test_a_master_that_its_node_ends_for_good_leaves_nobody_behind(shell: Shell) -> None:
    """Its pod stays, so nobody collects what it owns: parameter server and worker go, and free their room."""
    cluster = shell.cluster
    cluster.add_node("node-a", cpu="2")
    shell.edlz("train", *flags(shell, "--num_workers=1", "--num_epochs=100", "--orphan_secs=5"))
    shell.wait_for_training(JOB, minibatches=20)

    cluster.kill_container(MASTER, signal.SIGSTOP)  # it is not to say anything any more
    cluster.store.patch("pods", MASTER, {"spec": {"activeDeadlineSeconds": 1}}, cluster.namespace)
    shell.wait_for(
        "the kubelet ends the master's pod",
        lambda: any(event["reason"] == "DeadlineExceeded" for event in cluster.events(MASTER)),
    )
    cluster.kill_container(MASTER, signal.SIGKILL)
    cluster.wait_for_phase(MASTER, "Failed")

    for name in ("ps-0", "worker-0"):
        cluster.wait_for_phase(pod_name(JOB, name), "Failed")
        assert "does not answer any more, for 5s now" in cluster.log(pod_name(JOB, name))
    assert shell.pod(JOB, "master")["status"]["reason"] == "DeadlineExceeded"
    sleep = {"name": "c", "image": cluster.image, "command": ["sleep", "1000"]}
    room = {"resources": {"requests": {"cpu": "1900m"}}}
    pod = {"metadata": {"name": "next"}, "spec": {"containers": [sleep | room]}}
    cluster.create("pods", pod)
    cluster.wait_for_phase("next", "Running")


ASTRAY = """
class Cluster:
    def with_pod(self, pod):
        container = pod.spec.containers[0]
        if "--worker_id=0" in container.command:
            addresses = [flag for flag in container.command if flag.startswith("--master_addr=")]
            container.command[container.command.index(addresses[0])] = "--master_addr=tcp://127.0.0.1:1"
        return pod

    def with_service(self, service):
        return service

cluster = Cluster()
"""


def test_a_worker_that_does_not_find_its_master_is_replaced_and_says_why(desk: Shell) -> None:
    (desk.folder / "spec.py").write_text(ASTRAY)
    more = ("--num_workers=1", "--num_epochs=1", "--orphan_secs=5", "--cluster_spec=spec.py")
    desk.edlz("train", *flags(desk, *more))
    reason = "the master at tcp://127.0.0.1:1 does not answer at all, for 5s now"
    desk.wait_for("the loss of worker-0", lambda: reason in desk.cluster.log(MASTER))
    status = desk.wait_for_end(JOB)
    check_ledger(status)
    assert reason in told(status, "worker-0")


@pytest.mark.parametrize("is_stuck", [False, True])
def test_a_deleted_master_pod_takes_everything_with_it_and_the_job_is_resumed(
    desk: Shell, is_stuck: bool
) -> None:
    """It saves a checkpoint when it is asked to go; if it cannot (stopped), its snapshots remain."""
    folder = desk.cluster.claim_folder("data") / "jobs" / JOB
    more = ("--num_workers=2", "--num_epochs=20", "--job_dir=/data/jobs/mnist", "--recovery_snapshot_secs=1")
    desk.edlz("train", *flags(desk, *more))
    desk.wait_for_training(JOB, workers=2, minibatches=60)
    desk.wait_for("a snapshot", lambda: (note := desk.note(JOB)) and note.snapshot)
    grace_s = 30
    if is_stuck:
        desk.cluster.kill_container(MASTER, signal.SIGSTOP)
        grace_s = 1  # it is killed after that
    if desk.has_kubectl:
        desk.kubectl("delete", "pod", MASTER, f"--grace-period={grace_s}", "--wait=false")
    else:
        desk.cluster.delete("pods", MASTER, grace_s=grace_s)
    for resource in ("pods", "services", "secrets"):
        desk.wait_for(f"no {resource}", lambda one=resource: not desk.cluster.list(one, selector(JOB)))
    saved = list(folder.glob("checkpoints/version-*/manifest*"))
    assert bool(saved) is not is_stuck, saved
    assert "its master pod is gone" in desk.edlz("status", JOB).out

    desk.edlz("resume", JOB)
    status = desk.wait_for_end(JOB)
    check_ledger(status)
    assert "training begins at v0" not in told_last(status, "training begins at v")


# ---------------------------------------------------------------- a manifest


def test_a_manifest_applied_by_hand_runs_the_same_job(desk: Shell) -> None:
    more = ("--num_workers=1", "--num_epochs=2", "--validation_data=/data/mnist/test")
    desk.edlz("train", *flags(desk, *more))
    submitted, digest = _objects_and_digest(desk)
    desk.edlz("rm", JOB)
    desk.wait_for("no pods", lambda: not desk.cluster.list("pods"))

    manifest = desk.folder / "job.yaml"
    desk.edlz("train", *flags(desk, *more), f"--yaml={manifest}")
    assert desk.cluster.list("pods") == []
    desk.apply(manifest)
    applied, same_digest = _objects_and_digest(desk)
    assert applied == submitted
    assert same_digest == digest != ""


def _objects_and_digest(shell: Shell) -> tuple[dict[str, Any], str]:
    """Return what the job's pods are, without what differs from one start to the next; and how the job ended."""
    wanted = ["master", "ps-0", "worker-0"]
    shell.wait_for("three pods", lambda: sorted(shell.pods(JOB, "Running")) == wanted)
    objects = {name: _lasting(shell.pod(JOB, name)) for name in wanted}
    status = shell.wait_for_end(JOB)
    check_ledger(status)
    return objects, str(status["job"]["digest"])


def _lasting(pod: dict[str, Any]) -> dict[str, Any]:
    about = pod["metadata"]
    spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    labels = {name: value for name, value in about["labels"].items() if name != "status"}
    config = about.get("annotations", {}).get(CONFIG)
    text = json.dumps({"spec": spec, "labels": labels, "config": config})
    text = re.sub(r"127\.\d+\.\d+\.\d+", "ADDRESS", text)
    return dict(json.loads(re.sub(r"kube-api-access-\w+", "TOKEN", text)))


# ---------------------------------------------------------------- the API server


def test_a_job_ends_well_on_a_cluster_that_is_hardly_there(desk: Shell) -> None:
    api, created = desk.cluster.api, _creations(desk)
    manifest = desk.folder / "job.yaml"
    desk.edlz("train", *flags(desk, "--num_workers=2", "--num_epochs=60", f"--yaml={manifest}"))
    api.faults.watch_life_s, api.faults.doubles_events, api.faults.shuffle_seed = 1.0, True, 3
    api.faults.refuse(500, share=0.3, seed=1)
    api.faults.refuse(429, share=0.2, seed=2)
    desk.cluster.create("pods", yaml.safe_load(manifest.read_text()))
    desk.wait_for_training(JOB, workers=2)

    desk.cluster.kill_container(pod_name(JOB, "worker-0"))
    desk.wait_for("its replacement", lambda: "worker-2" in desk.pods(JOB, "Running"))
    api.faults.is_expired = True
    desk.cluster.kill_container(pod_name(JOB, "worker-1"))
    desk.wait_for("its replacement", lambda: "worker-3" in desk.pods(JOB, "Running"))
    api.faults.is_expired = False
    # What stands on the pod may be old here; and a worker that has not joined yet is missed by nobody.
    desk.wait_for("worker-2 trains", lambda: "worker-2 training after " in desk.cluster.log(MASTER))

    note = desk.note(JOB)
    assert note is not None
    api.down()
    desk.cluster.kill_container(pod_name(JOB, "worker-2"))
    desk.wait_for(
        "the loss of worker-2", lambda: "worker-2 lost: nothing heard for" in desk.cluster.log(MASTER)
    )
    assert "worker-4" not in desk.pods(JOB)
    api.up()
    desk.wait_for("its replacement", lambda: "worker-4" in desk.pods(JOB, "Running"))
    desk.wait_for("news", lambda: (now := desk.note(JOB)) and now.minibatches > note.minibatches)
    desk.wait_for("half of it", lambda: (now := desk.note(JOB)) and now.minibatches > 1000)  # of 2,280
    desk.wait_for("the end", lambda: (now := desk.note(JOB)) and now.state in ENDED)
    assert api.faults.refused > 10
    assert api.faults.dropped_watches > 10

    api.faults.accept()
    api.faults.watch_life_s, api.faults.doubles_events, api.faults.shuffle_seed = None, False, None
    check_ledger(desk.wait_for_end(JOB))
    wanted = ("master", "ps-0", *(f"worker-{index}" for index in range(5)))
    assert created == {pod_name(JOB, name): 1 for name in wanted}


# ---------------------------------------------------------------- memory and nodes


def test_a_worker_out_of_memory_is_replaced_by_one_with_more(desk: Shell) -> None:
    desk.edlz("train", *flags(desk, "--num_workers=1", "--num_epochs=6"))
    desk.wait_for_training(JOB)
    desk.cluster.oom(pod_name(JOB, "worker-0"))
    desk.wait_for("its replacement", lambda: "worker-1" in desk.pods(JOB, "Running"))
    resources = desk.pod(JOB, "worker-1")["spec"]["containers"][0]["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == "1536Mi"
    status = desk.wait_for_end(JOB)
    check_ledger(status)
    text = "worker-0 lost: killed at its limit of 1024Mi: out of memory; the next one gets 1536Mi."
    told(status, text)


def test_a_job_goes_on_without_a_node_that_is_lost(shell: Shell) -> None:
    cluster = shell.cluster
    cluster.add_node("services", cpu="1")
    more = ("--num_workers=2", "--num_epochs=40", "--worker_resource_request=cpu=2,memory=1024Mi")
    soon = ("--worker_hang_secs=12", "--skip_preflight")  # which finds no room for workers
    shell.edlz("train", *flags(shell, *more, *soon))
    shell.wait_for("pods that wait", lambda: sorted(shell.pods(JOB, "Pending")) == ["worker-0", "worker-1"])
    for name in ("node-a", "node-b", "node-c"):
        cluster.add_node(name, cpu="2")
    shell.wait_for_training(JOB, workers=2)
    lost = shell.pod(JOB, "worker-0")["spec"]["nodeName"]
    cluster.lose_node(lost)
    shell.wait_for("a worker elsewhere", lambda: "worker-2" in shell.pods(JOB, "Running"))
    assert shell.pod(JOB, "worker-2")["spec"]["nodeName"] != lost
    shell.wait_for_training(JOB, workers=2)
    cluster.remove_node(lost)
    status = shell.wait_for_end(JOB)
    check_ledger(status)
    told(status, "worker-0 lost:")


def test_a_parameter_server_comes_back_on_another_node_with_its_snapshot(shell: Shell) -> None:
    cluster = shell.cluster
    cluster.add_node("master", cpu="0.15")
    more = ("--num_workers=1", "--num_epochs=12", "--worker_resource_request=cpu=2,memory=1024Mi")
    files = ("--job_dir=/data/jobs/mnist", "--recovery_snapshot_secs=1")
    shell.edlz("train", *flags(shell, *more, *files), "--skip_preflight")
    cluster.add_node("servers", cpu="0.5")
    cluster.add_node("workers", cpu="2")
    shell.wait_for_training(JOB, minibatches=40)
    shell.wait_for("a snapshot", lambda: (note := shell.note(JOB)) and note.snapshot)
    before = shell.pod(JOB, "ps-0")
    assert before["spec"]["nodeName"] == "servers"
    cluster.lose_node("servers")
    cluster.add_node("others", cpu="0.5")
    shell.wait_for("an eviction", lambda: "ps-0" not in shell.pods(JOB))
    cluster.remove_node("servers")
    shell.wait_for("a server elsewhere", lambda: "ps-0" in shell.pods(JOB, "Running"))
    assert shell.pod(JOB, "ps-0")["spec"]["nodeName"] == "others"
    status = shell.wait_for_end(JOB)
    check_ledger(status)
    told(status, "ps-0 lost: its node was lost or drained.")
    assert "ps-0 is back at v0;" not in told(status, "ps-0 is back at v")


def test_a_deleted_parameter_server_has_the_job_saved_first(desk: Shell) -> None:
    more = ("--num_workers=1", "--num_ps_pods=2", "--num_epochs=12", "--use_async=false", "--grads_to_wait=2")
    files = ("--job_dir=/data/jobs/mnist", "--recovery_snapshot_secs=600")
    desk.edlz("train", *flags(desk, *more, *files))
    desk.wait_for_training(JOB, minibatches=40)
    desk.cluster.delete("pods", pod_name(JOB, "ps-0"))
    status = desk.wait_for_end(JOB)
    check_ledger(status)
    assert "ps-0 was told to end" in told(status, "ps-0 was told to end")
    assert "all partitions go back to v0," not in told(status, "all partitions go back to v")


def test_a_job_whose_masters_node_freezes_is_resumed_elsewhere(shell: Shell) -> None:
    """Kubelet and containers are frozen, so its pods stay Terminating: `resume` takes them over."""
    cluster = shell.cluster
    cluster.add_node("first")
    more = ("--num_workers=1", "--num_epochs=20", "--job_dir=/data/jobs/mnist", "--recovery_snapshot_secs=1")
    shell.edlz("train", *flags(shell, *more))
    shell.wait_for_training(JOB, minibatches=40)
    shell.wait_for("a snapshot", lambda: (note := shell.note(JOB)) and note.snapshot)
    cluster.add_node("second")
    for name in ("master", "ps-0", "worker-0"):
        cluster.kill_container(pod_name(JOB, name), signal.SIGSTOP)
    cluster.lose_node("first", crash=False)
    shell.wait_for("an eviction", lambda: "deletionTimestamp" in shell.pod(JOB, "master")["metadata"])
    assert "the node of its master does not answer" in shell.edlz("status", JOB).out

    shell.edlz("resume", JOB)
    assert shell.pod(JOB, "master")["spec"]["nodeName"] == "second"
    status = shell.wait_for_end(JOB)
    check_ledger(status)
    assert "training begins at v0" not in told_last(status, "training begins at v")

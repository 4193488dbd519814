"""Pods as real processes: how they run, end, are started again, deleted, preempted and evicted."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.any_cluster import make_claim
from tests.k8s.cluster import PYTHON_IMAGE, TestCluster
from tests.k8s.nodes.containers import can_mount
from tests.k8s.nodes.pod_life import Times

Object = dict[str, Any]
WAIT_FOR_TERM = (
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); print('up', flush=True); "
    "signal.sigwait([signal.SIGTERM])"
)
IGNORE_TERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def make_pod(name: str, code: str, **spec: Any) -> Object:
    """Return a pod that runs Python code; `container` adds to its container."""
    container = {"name": "c", "image": PYTHON_IMAGE, "command": ["python", "-c", code]}
    container |= spec.pop("container", {})
    metadata = {"name": name, **spec.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def cpu(amount: str) -> Object:
    return {"resources": {"requests": {"cpu": amount}}}


def container_status(pod: Object) -> Object:
    status: Object = pod["status"]["containerStatuses"][0]
    return status


def wait_until_up(cluster: TestCluster, pod: str) -> None:
    """Wait until the pod's program has printed its first line."""

    def is_up() -> bool:
        found = cluster.find("pods", pod)
        return found is not None and found["status"].get("phase") == "Running" and "up" in cluster.log(pod)

    cluster.wait_for(is_up, f"{pod} is up")


def changes(cluster: TestCluster, *pods: str) -> list[tuple[str, str, Object]]:
    """Return (name, kind of event, object) of all changes of the pods, as a watch shows them."""
    return [
        (change.key[1], change.kind, change.after)
        for change in cluster.store.history.since("pods", 0)
        if change.key[1] in pods
    ]


@pytest.fixture
def node(emulated_cluster: TestCluster) -> TestCluster:
    emulated_cluster.add_node("node-a", cpu="2")
    return emulated_cluster


# -- how pods run


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (7, "Failed", "Error")])
def test_a_pod_runs_to_its_end(node: TestCluster, code: int, phase: str, reason: str) -> None:
    node.create("pods", make_pod("p", f"print('hello'); raise SystemExit({code})"))
    pod = node.wait_for_phase("p", "Succeeded", "Failed")
    ended = container_status(pod)["state"]["terminated"]
    assert (pod["status"]["phase"], ended["exitCode"], ended["reason"]) == (phase, code, reason)
    assert node.log("p") == "hello\n"
    assert [one["reason"] for one in node.events("p")] == ["Scheduled", "Created", "Started"]


def test_environment_and_command_are_expanded(node: TestCluster) -> None:
    node.create("secrets", {"metadata": {"name": "s"}, "stringData": {"key": "secret"}})
    node.create("configmaps", {"metadata": {"name": "m"}, "data": {"A": "a", "B": "b"}})
    fields = {
        "IP": "status.podIP",
        "POD": "metadata.name",
        "UID": "metadata.uid",
        "L": "metadata.labels['l']",
    }
    env: list[Object] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]
    env += [
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
        {"name": "ADDRESS", "value": "tcp://$(IP):2222 $(NONE) $$(IP)"},
        {"name": "NOT", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no", "optional": True}}},
    ]
    code = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
    container = {"env": env, "envFrom": [{"configMapRef": {"name": "m"}}], "args": ["--ip=$(IP)", "$(B)"]}
    node.create("pods", make_pod("p", code, container=container, metadata={"labels": {"l": "x"}}))
    pod = node.wait_for_phase("p", "Succeeded")
    ip = pod["status"]["podIP"]
    shown, arguments = json.loads(node.log("p"))
    expected = {
        "IP": ip,
        "POD": "p",
        "UID": pod["metadata"]["uid"],
        "L": "x",
        "SECRET": "secret",
        "ADDRESS": f"tcp://{ip}:2222 $(NONE) $(IP)",
        "A": "a",
        "HOSTNAME": "p",
    }
    assert {key: shown[key] for key in expected} == expected
    assert "NOT" not in shown
    assert arguments == [f"--ip={ip}", "b"]
    assert ip.startswith("127.")


def test_an_image_has_contents_of_its_own(node: TestCluster, tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "file").write_text("in the image")
    node.images.add("zoo", contents={"/model_zoo": tmp_path / "zoo"})
    node.create("pods", make_pod("p", "print(open('/model_zoo/file').read())", container={"image": "zoo"}))
    node.wait_for_phase("p", "Succeeded")
    assert node.log("p") == "in the image\n"


@pytest.mark.parametrize("mounts", [True, False])
def test_volumes_are_at_their_paths(
    node: TestCluster, tmp_path: Path, mounts: bool, monkeypatch: Any
) -> None:
    if mounts and not can_mount():
        pytest.skip("this machine forbids mount namespaces")
    monkeypatch.setattr("tests.k8s.nodes.containers.can_mount", lambda: mounts)
    node.create("secrets", {"metadata": {"name": "s"}, "stringData": {"key": "secret"}})
    node.create("persistentvolumeclaims", make_claim("claim"))
    (tmp_path / "host").mkdir()
    volumes = [
        {"name": "job", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "keys", "secret": {"secretName": "s"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "host", "hostPath": {"path": str(tmp_path / "host")}},
    ]
    paths = {
        "job": "/var/lib/edlz/job",
        "tmp": "/tmp",
        "keys": "/var/run/edlz/keys",
        "data": "/data",
        "host": "/h",
    }
    volume_mounts: list[Object] = [{"name": name, "mountPath": path} for name, path in paths.items()]
    volume_mounts[3]["subPath"] = "sub"
    code = (
        "import pathlib, sys; job, tmp, keys, data, host = map(pathlib.Path, sys.argv[1:]); print((keys / 'key').read_text())\n"
        "for place in (job, tmp, data, host): (place / 'made').write_text(str(place))"
    )
    container = {"volumeMounts": volume_mounts, "args": list(paths.values())}
    node.create("pods", make_pod("p", code, volumes=volumes, container=container))
    node.wait_for_phase("p", "Succeeded")
    assert node.log("p") == "secret\n"
    folder = node.pod_folder("p") / "volumes"
    shown = paths if mounts else {"job": str(folder / "job"), "tmp": str(folder / "tmp")}
    assert (folder / "job" / "made").read_text() == shown["job"]
    assert (folder / "tmp" / "made").read_text() == shown["tmp"]
    assert (node.claim_folder("claim") / "sub" / "made").exists()
    assert (tmp_path / "host" / "made").exists()
    assert not Path("/var/lib/edlz/job/made").exists()
    node.delete("pods", "p")
    node.wait_for(lambda: not folder.exists(), "the pod's folder is gone")
    assert (node.claim_folder("claim") / "sub" / "made").exists()


def test_a_pod_waits_for_its_secret_and_its_image(node: TestCluster) -> None:
    volumes = [{"name": "k", "secret": {"secretName": "late"}}]
    node.create("pods", make_pod("p", "pass", volumes=volumes))
    reasons = ("FailedMount", 'MountVolume.SetUp failed for volume "k" : secret "late" not found')
    node.wait_for(
        lambda: reasons in [(one["reason"], one["message"]) for one in node.events("p")], "the missing secret"
    )
    node.create("secrets", {"metadata": {"name": "late"}})
    node.wait_for_phase("p", "Succeeded")
    node.create("pods", make_pod("q", "pass", container={"image": "late"}))

    def waits(reason: str) -> bool:
        status = node.find("pods", "q")["status"].get("containerStatuses")  # type: ignore[index]
        return bool(status) and status[0]["state"].get("waiting", {}).get("reason") == reason

    node.wait_for(lambda: waits("ImagePullBackOff"), "the missing image")
    node.images.add("late")
    node.wait_for_phase("q", "Succeeded")


def test_a_command_that_does_not_exist_is_a_start_error(node: TestCluster) -> None:
    node.create("pods", make_pod("p", "", container={"command": ["no-such-command"]}))
    ended = container_status(node.wait_for_phase("p", "Failed"))["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "FileNotFoundError" in ended["message"]


def test_a_container_restarts_in_place_and_keeps_its_volumes(node: TestCluster) -> None:
    code = (
        "import pathlib, sys; log = pathlib.Path(sys.argv[1]); text = log.read_text() if log.exists() else ''\n"
        "log.write_text(text + 'x'); print(len(text), flush=True); sys.exit(len(text) < 2)"
    )
    spec = {"volumes": [{"name": "v", "emptyDir": {}}], "restartPolicy": "OnFailure"}
    container = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "args": ["/v/log"]}
    node.create("pods", make_pod("p", code, container=container, **spec))
    status = container_status(node.wait_for_phase("p", "Succeeded"))
    assert status["restartCount"] == 2
    assert (node.log("p"), node.log("p", previous=True)) == ("2\n", "1\n")
    assert "BackOff" in [one["reason"] for one in node.events("p")]


# -- how they end


def test_a_deleted_pod_gets_term_and_its_grace(node: TestCluster) -> None:
    node.create("pods", make_pod("p", WAIT_FOR_TERM + "; raise SystemExit(4)"))
    wait_until_up(node, "p")
    node.delete("pods", "p")
    node.wait_until_gone("p")
    kinds = [(kind, after["status"]["phase"]) for _, kind, after in changes(node, "p")]
    assert kinds[-4:] == [
        ("MODIFIED", "Running"),
        ("MODIFIED", "Failed"),
        ("MODIFIED", "Failed"),
        ("DELETED", "Failed"),
    ]
    last = changes(node, "p")[-1][2]
    assert container_status(last)["state"]["terminated"]["exitCode"] == 4
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0


@pytest.mark.parametrize("grace_s", [1, 0])
def test_a_pod_that_ignores_term_is_killed(node: TestCluster, grace_s: int) -> None:
    node.create("pods", make_pod("p", "import os; print(os.getpid(), flush=True); " + IGNORE_TERM))
    wait_until_up(node, "p")
    process = Path(f"/proc/{node.log('p').split()[0]}")
    assert process.exists()
    node.delete("pods", "p", grace_s=grace_s)
    node.wait_until_gone("p")
    node.wait_for(lambda: not process.exists(), "the process is gone")
    if grace_s:
        last = changes(node, "p")[-1][2]
        assert container_status(last)["state"]["terminated"]["exitCode"] == 137


def test_children_end_with_their_container(node: TestCluster) -> None:
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}]).pid)"
    node.create("pods", make_pod("p", code))
    node.wait_for_phase("p", "Succeeded")
    child = Path(f"/proc/{node.log('p').split()[0]}")
    node.wait_for(lambda: not child.exists(), "the child is gone")


def test_out_of_memory_and_kills_are_told_apart(node: TestCluster) -> None:
    for name in ("oom", "killed"):
        node.create("pods", make_pod(name, SLEEP))
        wait_until_up(node, name)
    node.oom("oom")
    node.kill_container("killed", signal.SIGKILL)
    ended = [container_status(node.wait_for_phase(name, "Failed")) for name in ("oom", "killed")]
    assert [
        (one["state"]["terminated"]["reason"], one["state"]["terminated"]["exitCode"]) for one in ended
    ] == [
        ("OOMKilled", 137),
        ("Error", 137),
    ]


def test_a_memory_limit_is_kept(tmp_path: Path) -> None:
    with TestCluster(tmp_path / "cluster", limits_memory=True, times=Times(heartbeat_s=0.1)) as cluster:
        cluster.add_node("a")
        limits = {"resources": {"limits": {"memory": "64Mi"}}}
        cluster.create("pods", make_pod("p", "held = b'x' * 2**28; " + SLEEP, container=limits))
        ended = container_status(cluster.wait_for_phase("p", "Failed"))["state"]["terminated"]
        assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


def test_dependents_go_with_their_owner(node: TestCluster) -> None:
    owner = node.create("pods", make_pod("owner", SLEEP))
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner["metadata"]["uid"]}
    node.create("pods", make_pod("owned", SLEEP, metadata={"ownerReferences": [reference]}))
    node.create("secrets", {"metadata": {"name": "s", "ownerReferences": [reference]}})
    wait_until_up(node, "owned")
    node.delete("pods", "owner", grace_s=1)
    node.wait_until_gone("owned")
    node.wait_for(lambda: node.find("secrets", "s") is None, "the secret is gone")


def test_a_namespace_goes_with_what_is_in_it(node: TestCluster) -> None:
    node.store.create("namespaces", {"metadata": {"name": "space"}})
    node.store.create("pods", make_pod("p", SLEEP, terminationGracePeriodSeconds=1), "space")
    node.store.delete("namespaces", "space")
    node.wait_for(lambda: node.store.find("namespaces", "space") is None, "the namespace is gone")
    assert node.store.list("pods", "space") == []


# -- preemption, as it was recorded


def test_preemption_is_seen_in_the_order_of_a_real_cluster(node: TestCluster) -> None:
    node.store.create("priorityclasses", {"metadata": {"name": "high"}, "value": 100})
    node.create("pods", make_pod("lo", SLEEP, container=cpu("2"), terminationGracePeriodSeconds=3))
    wait_until_up(node, "lo")
    begin = node.store.revision
    node.create("pods", make_pod("hi", SLEEP, container=cpu("2"), priorityClassName="high"))
    wait_until_up(node, "hi")
    seen = [(change.key[1], change.kind, change.after) for change in node.store.history.since("pods", begin)]
    steps = [describe(*one) for one in seen]
    assert list(dict.fromkeys(steps)) == [
        "hi ADDED",
        "hi nominated, Unschedulable",
        "lo DisruptionTarget PreemptionByScheduler",
        "lo Terminating, Running",
        "lo Failed 143",
        "hi bound",
        "lo grace 0",
        "lo DELETED",
        "hi bound, ContainerCreating",
        "hi Running",
    ]
    message = "0/1 nodes are available: 1 Insufficient cpu."
    assert ("FailedScheduling", message) in [(one["reason"], one["message"]) for one in node.events("hi")]
    assert "Preempted" in [one["reason"] for one in node.events("lo")]


def describe(name: str, kind: str, pod: Object) -> str:
    """Say in a few words what a watch event shows of a preemption."""
    if kind != "MODIFIED":
        return f"{name} {kind}"
    metadata, status = pod["metadata"], pod["status"]
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    if name == "lo":
        if "deletionTimestamp" not in metadata:
            return f"lo DisruptionTarget {conditions['DisruptionTarget']['reason']}"
        if metadata["deletionGracePeriodSeconds"] == 0:
            return "lo grace 0"
        if status["phase"] == "Failed":
            return f"lo Failed {container_status(pod)['state']['terminated']['exitCode']}"
        return f"lo Terminating, {status['phase']}"
    if "nodeName" not in pod["spec"]:
        nominated = "nominated" if status.get("nominatedNodeName") == "node-a" else "not nominated"
        return f"hi {nominated}, {conditions['PodScheduled']['reason']}"
    if status["phase"] == "Running":
        return "hi Running"
    states = [next(iter(one["state"].values())) for one in status.get("containerStatuses", ())]
    return ", ".join(["hi bound", *(one["reason"] for one in states)])


# -- nodes


def test_a_lost_node_loses_its_pods(emulated_cluster: TestCluster) -> None:
    cluster = emulated_cluster
    cluster.add_node("node-a")
    cluster.create("pods", make_pod("p", SLEEP, terminationGracePeriodSeconds=1))
    wait_until_up(cluster, "p")
    begin = cluster.store.revision
    cluster.lose_node("node-a")
    cluster.wait_for(lambda: "deletionTimestamp" in cluster.find("pods", "p")["metadata"], "p is evicted")  # type: ignore[index]
    pod = cluster.find("pods", "p")
    assert pod is not None
    conditions = {one["type"]: one for one in pod["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "DeletionByTaintManager"
    assert (conditions["Ready"]["status"], pod["status"]["phase"]) == ("False", "Running")
    node = cluster.store.get("nodes", "node-a")
    (ready,) = (one for one in node["status"]["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    order = [
        change.after
        for resource in ("nodes", "pods")
        for change in cluster.store.history.since(resource, begin)
    ]
    order.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
    kinds = [one["kind"] for one, _ in itertools.pairwise(order)]
    assert kinds == sorted(kinds), "the node's state is seen before the pods'"
    # Nobody takes the object away before the node is.
    cluster.remove_node("node-a")
    cluster.wait_until_gone("p")


def test_a_node_that_comes_back_ends_what_was_evicted(emulated_cluster: TestCluster) -> None:
    cluster = emulated_cluster
    cluster.add_node("node-a")
    cluster.create("pods", make_pod("p", SLEEP, terminationGracePeriodSeconds=1))
    wait_until_up(cluster, "p")
    cluster.lose_node("node-a", crash=False)
    cluster.wait_for(lambda: "deletionTimestamp" in cluster.find("pods", "p")["metadata"], "p is evicted")  # type: ignore[index]
    cluster.restore_node("node-a")
    cluster.wait_until_gone("p")
    cluster.wait_for(lambda: not cluster.store.get("nodes", "node-a")["spec"].get("taints"), "no taints")
    cluster.create("pods", make_pod("q", "pass"))
    cluster.wait_for_phase("q", "Succeeded")


def test_a_reboot_restarts_containers(emulated_cluster: TestCluster) -> None:
    cluster = emulated_cluster
    cluster.add_node("node-a")
    cluster.create("pods", make_pod("p", SLEEP, restartPolicy="OnFailure"))
    wait_until_up(cluster, "p")
    before = cluster.find("pods", "p")
    cluster.lose_node("node-a")
    cluster.restore_node("node-a")

    def after() -> Object | None:
        pod = cluster.find("pods", "p")
        return pod if pod and container_status(pod)["restartCount"] == 1 else None

    pod = cluster.wait_for(after, "the container runs again")
    assert pod is not None
    assert before is not None
    assert container_status(pod)["lastState"]["terminated"]["exitCode"] == 255
    assert pod["status"]["podIP"] != before["status"]["podIP"]


# -- nothing is left


def processes_of(marker: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker in (entry / "cmdline").read_text():
                    yield int(entry.name)
            except OSError:
                pass


def test_no_process_outlives_its_cluster(tmp_path: Path) -> None:
    marker = f"cluster-test-{os.getpid()}"
    with TestCluster(tmp_path / "cluster") as cluster:
        cluster.add_node("a")
        for index in range(3):
            cluster.create("pods", make_pod(f"p{index}", f"'{marker}'; {IGNORE_TERM}"))
            wait_until_up(cluster, f"p{index}")
        assert len(list(processes_of(marker))) == 3
    assert list(processes_of(marker)) == []


def test_no_process_outlives_a_killed_test(tmp_path: Path) -> None:
    marker = f"killed-test-{os.getpid()}"
    code = f"""
import os, signal
from pathlib import Path
from tests.k8s.cluster import TestCluster
from tests.k8s.cases.emulator.test_cluster import IGNORE_TERM, make_pod, wait_until_up
with TestCluster(Path({str(tmp_path / "cluster")!r})) as cluster:
    cluster.add_node("a")
    cluster.create("pods", make_pod("p", "'{marker}'; " + IGNORE_TERM))
    wait_until_up(cluster, "p")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    here = str(Path(__file__).resolve().parents[4])
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    end = itertools.count()
    while list(processes_of(f"'{marker}'; import")) and next(end) < 1000:
        pass
    assert list(processes_of(f"'{marker}'; import")) == []

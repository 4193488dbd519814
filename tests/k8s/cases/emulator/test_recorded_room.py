"""Where room, quotas, strict namespaces and nodes are short, the emulated cluster does what a real Kubernetes 1.36.2 did."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.cluster import PYTHON_IMAGE, TestCluster
from tests.k8s.nodes.scheduler import oldest_first
from tests.k8s.server.objects.errors import ApiError
from tests.k8s.server.objects.pod_security import LABEL
from tests.k8s.server.objects.store import Store

Object = dict[str, Any]
Story = list[list[Any]]
PATH = Path(__file__).parents[2] / "kubernetes-1.36.2-room.jsonl"
RECORDS = {record["name"]: record for record in map(json.loads, PATH.read_text().splitlines())}
UNTIL_TERM = (
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); print('up', flush=True); "
    "signal.sigwait([signal.SIGTERM])"
)


def refused(store: Store, name: str, namespace: str = "default") -> Object:
    with pytest.raises(ApiError) as caught:
        store.create("pods", RECORDS[name]["request"], namespace)
    assert caught.value.code == RECORDS[name]["status"]
    return caught.value.status()


def test_a_quota_refuses_a_pod_too_many() -> None:
    store = Store()
    store.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})
    for name in ("a", "b"):
        store.create("pods", make_pod(name))
    record = "quota: a pod too many"
    assert refused(store, record) == RECORDS[record]["body"]
    store.patch("pods", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    store.create("pods", RECORDS[record]["request"])


@pytest.mark.parametrize("record", ["restricted: a plain pod", "restricted: a host folder"])
def test_a_restricted_namespace_gives_all_its_reasons(record: str) -> None:
    store = Store()
    store.create("namespaces", {"metadata": {"name": "strict", "labels": {LABEL: "restricted"}}})
    assert refused(store, record, "strict") == RECORDS[record]["body"]


# ---------------------------------------------------------------- what a watch shows


def make_pod(name: str, cpu: str = "", **spec: Any) -> Object:
    container: Object = {"name": "c", "image": PYTHON_IMAGE, "command": ["python", "-c", UNTIL_TERM]}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    return {
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def wait_until_up(cluster: TestCluster, name: str) -> None:
    """Wait until a pod can be asked to go without dying of it."""
    cluster.wait_for_phase(name, "Running")
    cluster.wait_for(lambda: "up" in cluster.log(name), f"{name} is up")


def story(cluster: TestCluster, name: str) -> Story:
    """Return what a watch has shown of the pods of a name: what the recording has of them."""
    found: Story = []
    lives: list[str] = []
    for change in cluster.store.history.since("pods", 0):
        about, pod = change.after["metadata"], change.after
        if about["name"] != name:
            continue
        if about["uid"] not in lives:
            lives.append(about["uid"])
        conditions = {one["type"]: one for one in pod["status"].get("conditions") or ()}
        scheduled = conditions.get("PodScheduled", {})
        step = [
            lives.index(about["uid"]) + 1,
            change.kind,
            pod["status"]["phase"],
            bool(pod["spec"].get("nodeName")),
            conditions.get("Ready", {}).get("status"),
            conditions.get("DisruptionTarget", {}).get("reason"),
            scheduled.get("reason") or scheduled.get("status"),
            about.get("deletionGracePeriodSeconds"),
        ]
        if not found or found[-1] != step:
            found.append(step)
    return found


def assert_as_recorded(cluster: TestCluster, record: str) -> None:
    for name, steps in RECORDS[record]["pods"].items():
        assert story(cluster, name) == steps, name


def test_a_waiting_pod_takes_the_room_of_a_deleted_one_before_its_name_is_free(
    emulated_cluster: TestCluster,
) -> None:
    cluster = emulated_cluster
    for name in ("vm", "vm2"):
        cluster.add_node(name, cpu="2")
    cluster.control_plane.order = oldest_first
    for name in ("ps-0", "worker-0", "worker-1", "worker-2"):
        cluster.create("pods", make_pod(name, "900m", terminationGracePeriodSeconds=5))
        wait_until_up(cluster, name)
    for name in ("worker-3", "ps-1"):
        cluster.create("pods", make_pod(name, "900m", terminationGracePeriodSeconds=5))
        cluster.wait_for(lambda name=name: "FailedScheduling" in _reasons(cluster, name), f"{name} waits")
    cluster.delete("pods", "ps-0")
    cluster.wait_until_gone("ps-0")
    cluster.wait_for_phase("worker-3", "Running")
    cluster.create("pods", make_pod("ps-0", "900m", terminationGracePeriodSeconds=5))
    cluster.wait_for(lambda: len(story(cluster, "ps-0")) == 10, "its next life waits")
    assert_as_recorded(cluster, "room")
    recorded = RECORDS["room: event"]["event"]
    assert recorded in [_told(event) for event in cluster.events("ps-1")]


def test_pods_of_a_lost_node_are_terminating_until_they_are_forced_or_it_is_back(
    emulated_cluster: TestCluster,
) -> None:
    cluster = emulated_cluster
    for name in ("vm", "vm2"):
        cluster.add_node(name)
    for name, node in (("here", "vm"), ("there-0", "vm2"), ("there-1", "vm2")):
        cluster.create("pods", make_pod(name, nodeName=node, terminationGracePeriodSeconds=20))
        wait_until_up(cluster, name)
    cluster.lose_node("vm2", crash=False)
    for name in ("there-0", "there-1"):
        cluster.wait_for(lambda name=name: story(cluster, name)[-1][-1] == 20, f"{name} is to go")
    record = "lost node: the same name again while it is Terminating"
    assert refused(cluster.store, record) == RECORDS[record]["body"]
    recorded = RECORDS["lost node: event"]["event"]
    assert recorded in [_told(event) for event in cluster.events("there-0")]

    cluster.delete("pods", "there-0", grace_s=0)
    cluster.create("pods", make_pod("there-0", nodeName="vm", terminationGracePeriodSeconds=5))
    cluster.wait_for_phase("there-0", "Running")
    cluster.restore_node("vm2")
    cluster.wait_until_gone("there-1")
    assert_as_recorded(cluster, "lost node")


def _reasons(cluster: TestCluster, name: str) -> list[str]:
    return [event["reason"] for event in cluster.events(name)]


def _told(event: Object) -> Object:
    return {name: event[name] for name in RECORDS["room: event"]["event"]}

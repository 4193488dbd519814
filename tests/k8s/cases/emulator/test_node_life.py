"""Silent nodes and lost owners, in cores."""

from typing import Any

from tests.k8s.nodes.garbage_collector import orphans, remains
from tests.k8s.nodes.node_life import Collect, Evict, NodeController, Reachable, Unreachable
from tests.k8s.nodes.pod_life import Times

Object = dict[str, Any]
TIMES = Times(node_grace_s=4, toleration_scale=0.1, lost_node_s=3)
NODE = {"metadata": {"name": "a"}, "spec": {}}
TAINT = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
TAINTED = {"metadata": {"name": "a"}, "spec": {"taints": [TAINT]}}


def make_pod(name: str, node: str = "a", **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"nodeName": node, **spec},
        "status": {"phase": "Running"},
    }


def toleration(seconds: int | None = None) -> Object:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute", **limit}


def test_a_silent_node_is_unreachable_until_it_speaks_again() -> None:
    controller, pod = NodeController(TIMES), make_pod("p")
    assert controller.step([NODE], [pod], {"a": "1"}, 0.0) == []
    assert controller.step([NODE], [pod], {"a": "2"}, 3.0) == []
    assert controller.wake_at() == 7.0
    assert controller.step([NODE], [pod], {"a": "2"}, 6.9) == []
    assert controller.step([NODE], [pod], {"a": "2"}, 7.0) == [Unreachable(node="a", pods=(pod,))]
    tolerant = make_pod("p", tolerations=[toleration()])
    assert controller.step([TAINTED], [tolerant], {"a": "2"}, 8.0) == []
    assert controller.step([TAINTED], [tolerant], {"a": "3"}, 99.0) == [Reachable(node="a")]


def test_pods_are_evicted_when_their_toleration_is_over() -> None:
    controller = NodeController(TIMES)
    at_once, later = make_pod("at-once"), make_pod("later", tolerations=[toleration(50), toleration(70)])
    ended, leaving, elsewhere = make_pod("ended"), make_pod("leaving"), make_pod("elsewhere", "b")
    ended["status"]["phase"] = "Failed"
    leaving["metadata"]["deletionTimestamp"] = "t"
    pods = [at_once, later, ended, leaving, elsewhere]
    nodes = [TAINTED, {"metadata": {"name": "b"}, "spec": {}}]
    assert controller.step(nodes, pods, {"a": "1", "b": "1"}, 0.0) == [
        Reachable(node="a"),
        Evict(pod=at_once),
    ]
    at_once["metadata"]["deletionTimestamp"] = "t"
    controller.step(nodes, pods, {"a": "1", "b": "2"}, 4.0)
    assert controller.wake_at() == 5.0
    assert controller.step(nodes, pods, {"a": "1", "b": "3"}, 5.0) == [Evict(pod=later)]


def test_pods_of_no_node_are_collected() -> None:
    controller, pod = NodeController(TIMES), make_pod("p", "nowhere")
    assert controller.step([NODE], [pod], {"a": "1"}, 0.0) == []
    assert controller.step([NODE], [pod], {"a": "2"}, 3.0) == [Collect(pod=pod)]


def owned(name: str, *owners: str, namespace: str = "n", **metadata: Any) -> Object:
    references = [{"uid": owner} for owner in owners]
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "namespace": namespace,
            "ownerReferences": references,
            **metadata,
        }
    }


def test_dependents_go_with_their_last_owner() -> None:
    objects = [owned("a"), owned("b", "a"), owned("c", "gone", "a"), owned("d", "gone"), owned("e", "d")]
    objects.append(owned("f", "gone", deletionTimestamp="t"))
    assert [one["metadata"]["name"] for one in orphans(objects)] == ["d"]
    assert [one["metadata"]["name"] for one in orphans(objects[1:])] == ["b", "c", "d"]


def test_a_namespace_goes_when_it_is_empty() -> None:
    spaces = [{"metadata": {"name": name, "deletionTimestamp": "t"}} for name in ("n", "m")]
    objects = [owned("a"), owned("b", deletionTimestamp="t"), owned("c", namespace="other")]
    to_delete, empty = remains([*spaces, {"metadata": {"name": "other"}}], objects)
    assert [one["metadata"]["name"] for one in to_delete] == ["a"]
    assert empty == ["m"]

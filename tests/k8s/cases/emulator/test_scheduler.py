"""The scheduler's core against random clusters, and the words it uses."""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.k8s.nodes.scheduler import Bind, Decision, Preempt, Unschedulable, plan
from tests.k8s.server.objects.quantities import add, number, pod_requests

Object = dict[str, Any]
GPU = "nvidia.com/gpu"


def make_node(name: str, cpu: str = "4", memory: str = "8Gi", **more: Any) -> Object:
    spec = {key: more.pop(key) for key in ("taints", "unschedulable") if key in more}
    capacity = {"cpu": cpu, "memory": memory, "pods": "110", **more.pop("capacity", {})}
    return {"metadata": {"name": name, **more}, "spec": spec, "status": {"allocatable": capacity}}


def make_pod(name: str, cpu: str = "1", priority: int = 0, node: str | None = None, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "", "resourceVersion": "1"}
    if node is not None:
        spec["nodeName"] = node
    resources = {"requests": {"cpu": cpu, **spec.pop("requests", {})}}
    containers = [{"name": "c", "image": "x", "resources": resources}]
    return {
        "metadata": metadata,
        "spec": {"containers": containers, "priority": priority, **spec},
        "status": {"phase": "Running" if node else "Pending"},
    }


def reason(decisions: list[Decision]) -> str:
    (decision,) = decisions
    assert isinstance(decision, Unschedulable)
    return decision.message


def test_quantities_are_exact() -> None:
    amounts = {"100m": "0.1", "1.5": "1.5", "2": "2", "1Ki": "1024", "4096Mi": "4294967296", "1k": "1000"}
    assert {text: str(number(text).normalize()) for text in amounts} == {
        text: str(number(value).normalize()) for text, value in amounts.items()
    }
    pod = make_pod("a")
    pod["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {"cpu": "3"}}}]
    assert pod_requests(pod) == {"cpu": 3, "pods": 1}


def test_the_emptiest_node_is_taken() -> None:
    nodes = [make_node("a"), make_node("b")]
    pods = [make_pod("there", node="a"), make_pod("new")]
    assert plan(nodes, pods, ()) == [Bind(pod=pods[1], node="b")]


def test_why_a_pod_waits_is_said_in_the_words_of_kubernetes() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [make_node("a"), make_node("b", taints=[taint]), make_node("c", labels={"disk": "ssd"})]
    assert reason(plan(nodes[:1] + nodes[2:], [make_pod("p", cpu="5")], ())) == (
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )
    picky = make_pod("p", nodeSelector={"disk": "ssd"}, requests={GPU: "1"})
    assert reason(plan(nodes, [picky], ())) == (
        f"0/3 nodes are available: 1 Insufficient {GPU}, 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/3 nodes are available: "
        "1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
    )
    tolerant = make_pod("p", tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert plan(nodes[1:2], [tolerant], ()) == [Bind(pod=tolerant, node="b")]
    never = make_pod("p", cpu="5", preemptionPolicy="Never")
    assert reason(plan(nodes[:1], [never], ())).endswith("not eligible due to preemptionPolicy=Never.")


def test_the_same_reason_is_not_said_again() -> None:
    nodes, pod = [make_node("a")], make_pod("p", cpu="5")
    message = reason(plan(nodes, [pod], ()))
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    assert plan(nodes, [pod], ()) == []


def test_a_pod_waits_for_its_volume_claim() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    nodes, pod = [make_node("a")], make_pod("p", volumes=[volume])
    assert 'persistentvolumeclaim "data" not found' in reason(plan(nodes, [pod], ()))
    assert plan(nodes, [pod], [("n", "data")]) == [Bind(pod=pod, node="a")]


def test_preemption_nominates_then_waits_then_binds() -> None:
    nodes = [make_node("a", cpu="2")]
    low, high, other = make_pod("lo", "2", node="a"), make_pod("hi", "2", 10), make_pod("other", "1", 5)
    said, preempt, *_ = plan(nodes, [low, high], ())
    assert isinstance(said, Unschedulable)
    assert (said.nominated, said.message) == ("a", "0/1 nodes are available: 1 Insufficient cpu.")
    assert isinstance(preempt, Preempt)
    assert (preempt.victim, preempt.preemptor) == (low, high)
    high["status"]["nominatedNodeName"] = "a"
    low["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert plan(nodes, [low, high], ()) == []
    low["status"]["phase"] = "Failed"
    assert plan(nodes, [low, other, high], ())[0] == Bind(pod=high, node="a")


def test_room_is_kept_for_a_nominated_pod() -> None:
    nodes = [make_node("a", cpu="4")]
    low, high, other = make_pod("lo", "3", node="a"), make_pod("hi", "4", 10), make_pod("other", "1", 5)
    high["status"]["nominatedNodeName"] = "a"
    low["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    decisions = plan(nodes, [low, high, other], ())
    assert not any(isinstance(one, Bind) for one in decisions), "a lower pod takes what was freed for another"


def test_no_more_victims_than_needed_and_the_least_of_them() -> None:
    nodes = [make_node("a", cpu="4"), make_node("b", cpu="4")]
    a = [make_pod(f"a{priority}", "2", priority, "a") for priority in (1, 7)]
    b = [make_pod(f"b{priority}", "2", priority, "b") for priority in (3, 4)]
    decisions = plan(nodes, [*a, *b, make_pod("hi", "2", 9)], ())
    assert [one.victim["metadata"]["name"] for one in decisions if isinstance(one, Preempt)] == ["a1"]


CPUS = st.sampled_from(["500m", "1", "2", "3"])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Object], list[Object]]:
    nodes = [
        make_node(f"n{i}", cpu=draw(st.sampled_from(["1", "2", "4"]))) for i in range(draw(st.integers(0, 3)))
    ]
    pods = [make_pod(f"p{i}", draw(CPUS), draw(st.integers(0, 4))) for i in range(draw(st.integers(0, 10)))]
    return nodes, pods


def apply(pods: list[Object], decisions: list[Decision]) -> None:
    """Do what is decided, as the API server would."""
    for decision in decisions:
        match decision:
            case Bind(pod=pod, node=node):
                pod["spec"]["nodeName"] = node
                pod["status"] = {"phase": "Running"}
            case Unschedulable(pod=pod, message=message, nominated=nominated):
                pod["status"]["conditions"] = [
                    {"type": "PodScheduled", "status": "False", "message": message}
                ]
                pod["status"]["nominatedNodeName"] = nominated
            case Preempt(victim=victim):
                assert not victim["metadata"].get("deletionTimestamp")
                victim["metadata"]["deletionTimestamp"] = "now"


def check(nodes: list[Object], pods: list[Object], decisions: list[Decision]) -> None:
    for node in nodes:
        here = [pod for pod in pods if pod["spec"].get("nodeName") == node["metadata"]["name"]]
        used = add(*(pod_requests(pod) for pod in here if pod["status"]["phase"] == "Running"))
        capacity = node["status"]["allocatable"]
        assert all(amount <= number(capacity[resource]) for resource, amount in used.items())
    for decision in decisions:
        if isinstance(decision, Preempt):
            assert _priority(decision.victim) < _priority(decision.preemptor)


def _priority(pod: Mapping[str, Any]) -> int:
    return int(pod["spec"]["priority"])


# On a busy machine everything is slow; and how many events a cluster has depends on what is drawn.
_calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@settings(_calm, max_examples=20)
@given(clusters(), st.data())
def test_nodes_are_never_overfull_and_all_comes_to_rest(
    cluster: tuple[list[Object], list[Object]], data: st.DataObject
) -> None:
    check_that_all_comes_to_rest(cluster, data)


@pytest.mark.slow
@settings(_calm, max_examples=300)
@given(clusters(), st.data())
def test_many_nodes_are_never_overfull_and_all_comes_to_rest(
    cluster: tuple[list[Object], list[Object]], data: st.DataObject
) -> None:
    check_that_all_comes_to_rest(cluster, data)


def check_that_all_comes_to_rest(cluster: tuple[list[Object], list[Object]], data: st.DataObject) -> None:
    """Pods arrive in any order, victims end at any time; at the end nobody waits who could run."""
    nodes, to_come = cluster
    pods: list[Object] = []
    for _ in itertools.count():
        if to_come and data.draw(st.booleans()):
            pods.append(to_come.pop())
        leaving = [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]
        if leaving and data.draw(st.booleans()):
            pods.remove(data.draw(st.sampled_from(leaving)))
        before = copy.deepcopy(pods)
        decisions = plan(nodes, pods, ())
        assert before == pods
        apply(pods, decisions)
        check(nodes, pods, decisions)
        if not (to_come or leaving or decisions):
            break
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    running = [pod for pod in pods if pod["spec"].get("nodeName")]
    for pod in waiting:
        lesser = [one for one in running if _priority(one) < _priority(pod)]
        for node in nodes:
            here = [
                pod_requests(one)["cpu"]
                for one in running
                if one["spec"]["nodeName"] == node["metadata"]["name"] and one not in lesser
            ]
            capacity = number(node["status"]["allocatable"]["cpu"])
            assert sum(here) + pod_requests(pod)["cpu"] > capacity, "it could have had this node"

"""Pods that only go by force."""

import datetime
import itertools

import msgspec
import pytest

from edlz.client.cluster import removal
from edlz.k8s.cluster.api_records import Condition, Metadata, Pod, PodSpec, PodStatus, ReadinessGate
from edlz.k8s.objects.pods import grace_s
from edlz.k8s.pods import launcher
from edlz.k8s.pods.pod_exits import is_out_of_reach
from edlz.k8s.pods.stuck_pods import MARGIN_S, StuckPods
from edlz.services.supervision import loop

LATEST_S = 15.0  # after its grace, or after its node is known to be lost, a pod is replaced
POLLS_S = {"master": loop.POLL_S, "its end": launcher.GONE_POLL_S, "command": removal.POLL_S}
STAMP = datetime.datetime.fromisoformat("2026-11-27T21:11:46+00:00")


def pod(grace_s: int | None = None, *, ready: str = "False", containers: str = "True", uid: str = "a") -> Pod:
    conditions = (
        Condition(type="Ready", status=ready),
        Condition(type="ContainersReady", status=containers),
    )
    about = Metadata(
        name="p",
        uid=uid,
        deletion_timestamp=None if grace_s is None else STAMP,
        deletion_grace_period_seconds=grace_s,
    )
    return Pod(metadata=about, status=PodStatus(phase="Running", conditions=conditions))


def test_a_node_is_out_of_reach_when_the_cluster_says_so_and_not_the_kubelet() -> None:
    assert is_out_of_reach(pod())
    assert not is_out_of_reach(pod(ready="True"))
    assert not is_out_of_reach(pod(containers="False"))
    assert not is_out_of_reach(Pod())


def test_a_gate_that_is_shut_says_nothing_of_the_node() -> None:
    """A load balancer's controller adds gates to pods; while one is not met, the kubelet says why the pod is not ready."""
    spec = PodSpec(readiness_gates=(ReadinessGate(condition_type="target-health.lbs.org/web"),))

    def gated(reason: str) -> Pod:
        ready = Condition(type="Ready", status="False", reason=reason)
        containers = Condition(type="ContainersReady", status="True")
        return Pod(spec=spec, status=PodStatus(phase="Running", conditions=(ready, containers)))

    assert not is_out_of_reach(gated("ReadinessGatesNotReady"))
    assert is_out_of_reach(gated("")), "its gates were met when the node controller wrote that"


def test_gates_are_read_as_the_api_writes_them() -> None:
    text = b'{"spec": {"readinessGates": [{"conditionType": "a.b/c"}]}}'
    assert msgspec.json.decode(text, type=Pod).spec.readiness_gates == (
        ReadinessGate(condition_type="a.b/c"),
    )


def test_a_pod_is_stuck_some_seconds_after_its_grace_on_a_node_that_does_not_answer() -> None:
    stuck = StuckPods()
    assert stuck.find([pod(20)], 100.0) == []
    assert stuck.find([pod(20)], 120.0 + MARGIN_S - 0.1) == []
    assert stuck.find([pod(20)], 120.0 + MARGIN_S) == [pod(20)]
    assert stuck.find([pod(20)], 130.0) == [pod(20)]


def test_neither_who_was_not_asked_nor_whose_node_answers_is_forced() -> None:
    stuck = StuckPods()
    for now in (0.0, 1000.0):
        assert stuck.find([pod(None), pod(5, containers="False", uid="b")], now) == []
    assert stuck.find([pod(5, uid="b")], 1001.0) == [pod(5, uid="b")]  # its node is lost later


def test_a_grace_can_become_shorter() -> None:
    stuck = StuckPods()
    stuck.find([pod(30)], 0.0)
    stuck.find([pod(10)], 4.0)
    assert stuck.find([pod(10)], 14.0 + MARGIN_S) != []
    assert StuckPods().find([pod(10)], 14.0 + MARGIN_S) == []


def test_who_is_gone_is_forgotten() -> None:
    stuck = StuckPods()
    stuck.find([pod(0)], 0.0)
    stuck.find([], 1.0)
    assert stuck.find([pod(0)], 100.0) == []


@pytest.mark.parametrize("poll_s", POLLS_S.values(), ids=POLLS_S)
@pytest.mark.parametrize("name", ["master", "ps-0", "worker-0"])
@pytest.mark.parametrize("lost_s", [-60.0, 0.0, 7.0, 19.9, 40.0, 300.0])
def test_a_lost_pod_does_not_hold_its_name_for_long(name: str, lost_s: float, poll_s: float) -> None:
    """It is asked to go at 0 s, just after a round; the cluster says at `lost_s` that its node is lost."""
    stuck, grace = StuckPods(), grace_s(name)
    rounds = (poll_s * number for number in itertools.count(1))
    is_lost = {True: pod(grace), False: pod(grace, ready="True")}
    found_s = next(now for now in rounds if stuck.find([is_lost[now > lost_s]], now))
    assert found_s - max(grace, lost_s) <= LATEST_S

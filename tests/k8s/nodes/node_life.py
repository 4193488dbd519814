"""Nodes that fall silent: what the node controller, the taint manager and the pod collector do about it.

A node whose heartbeats (its Lease's renewals) stop for too long gets the Ready condition Unknown and the taints
`node.kubernetes.io/unreachable`; its pods are shown as not ready. A pod that does not tolerate the taint, or no
longer, is marked as disrupted and deleted with its own grace; since nobody on the node answers, its object stays
until the node comes back, or until its Node object is gone as well.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.k8s.nodes.pod_life import Times
from tests.k8s.nodes.scheduler import tolerates

__all__ = [
    "TAINTS",
    "UNREACHABLE",
    "Collect",
    "Evict",
    "NodeController",
    "NodeDecision",
    "Reachable",
    "Unreachable",
]

Object = Mapping[str, Any]
UNREACHABLE = "node.kubernetes.io/unreachable"
TAINTS = tuple({"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute"))


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """Show the node as NotReady (Ready Unknown), taint it, and show its pods as not ready."""

    node: str
    pods: tuple[Object, ...]


@dataclass(frozen=True, kw_only=True)
class Reachable:
    """Take the taints away again."""

    node: str


@dataclass(frozen=True, kw_only=True)
class Evict:
    """Mark a pod with DisruptionTarget (DeletionByTaintManager), and delete it with its own grace."""

    pod: Object


@dataclass(frozen=True, kw_only=True)
class Collect:
    """Remove a pod at once that is bound to a node which does not exist."""

    pod: Object


NodeDecision = Unreachable | Reachable | Evict | Collect


class NodeController:
    """What is known of the nodes' silence: since when a taint or a missing node has been seen."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._now = 0.0
        self._renewed: dict[str, tuple[str, float]] = {}  # node -> what its lease said, since when it says it
        self._tainted: dict[str, float] = {}
        self._homeless: dict[str, float] = {}
        self._evictions: list[float] = []  # when pods that tolerate a taint for a while will be evicted

    def step(
        self, nodes: Iterable[Object], pods: Iterable[Object], renewals: Mapping[str, str], now: float
    ) -> list[NodeDecision]:
        """Decide about all nodes and pods.

        Parameters
        ----------
        renewals : mapping of str to str
            By node, the renewTime of its Lease. Only its changes count, so that clocks need not agree.
        """
        self._now, self._evictions = now, []
        nodes, pods = list(nodes), [pod for pod in pods if pod["spec"].get("nodeName")]
        decisions = [one for node in nodes for one in self._judge(node, pods, renewals, now)]
        decisions += [one for node in nodes for one in self._evict(node, pods, now)]
        return decisions + self._collect({node["metadata"]["name"] for node in nodes}, pods, now)

    def wake_at(self) -> float | None:
        """Return when time alone may change something next."""
        due = [since + self._times.node_grace_s for _, since in self._renewed.values()]
        due += [since + self._times.lost_node_s for since in self._homeless.values()] + self._evictions
        return min((at for at in due if at > self._now), default=None)

    def _judge(
        self, node: Object, pods: list[Object], renewals: Mapping[str, str], now: float
    ) -> list[NodeDecision]:
        name = node["metadata"]["name"]
        renewal, since = renewals.get(name, ""), now
        if name in self._renewed and self._renewed[name][0] == renewal:
            since = self._renewed[name][1]
        self._renewed[name] = (renewal, since)
        is_silent, is_tainted = now - since >= self._times.node_grace_s, bool(_no_execute(node))
        if is_silent and not is_tainted:
            return [
                Unreachable(node=name, pods=tuple(pod for pod in pods if pod["spec"]["nodeName"] == name))
            ]
        return [Reachable(node=name)] if is_tainted and not is_silent and _is_ours(node) else []

    def _evict(self, node: Object, pods: list[Object], now: float) -> list[NodeDecision]:
        taints, name = _no_execute(node), node["metadata"]["name"]
        if not taints:
            self._tainted.pop(name, None)
            return []
        since = self._tainted.setdefault(name, now)
        due = [
            (pod, since + self._tolerated_s(pod, taints))
            for pod in pods
            if pod["spec"]["nodeName"] == name
            and not pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        self._evictions += [at for _, at in due if now < at < float("inf")]
        return [Evict(pod=pod) for pod, at in due if now >= at]

    def _tolerated_s(self, pod: Object, taints: list[Object]) -> float:
        """Return for how long a pod stays: the shortest time that its tolerations give for any taint."""
        tolerations = pod["spec"].get("tolerations") or []
        stays = float("inf")
        for taint in taints:
            fitting = [one for one in tolerations if tolerates(one, taint)]
            limits = [float(one["tolerationSeconds"]) for one in fitting if "tolerationSeconds" in one]
            if not fitting:
                return 0.0
            if limits:
                stays = min(stays, min(limits) * self._times.toleration_scale)
        return stays

    def _collect(self, nodes: set[str], pods: list[Object], now: float) -> list[NodeDecision]:
        homeless = {pod["metadata"]["uid"]: pod for pod in pods if pod["spec"]["nodeName"] not in nodes}
        self._homeless = {uid: self._homeless.get(uid, now) for uid in homeless}
        return [
            Collect(pod=pod)
            for uid, pod in homeless.items()
            if now - self._homeless[uid] >= self._times.lost_node_s
        ]


def _no_execute(node: Object) -> list[Object]:
    taints = (node.get("spec") or {}).get("taints") or []
    return [taint for taint in taints if taint["effect"] == "NoExecute"]


def _is_ours(node: Object) -> bool:
    return any(taint["key"] == UNREACHABLE for taint in _no_execute(node))

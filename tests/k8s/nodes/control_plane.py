"""The loop that makes an API server a cluster: scheduler, kubelets, node controller and collectors, one thread.

Every pass does, in this order: what the scheduler decides, one step of every kubelet, what the node controller
and the collectors decide. A pass follows every change of an object and every end of a process. So the order of
what a watcher sees is that of a real cluster, and the same each time.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from tests.k8s.nodes import garbage_collector, scheduler
from tests.k8s.nodes.kubelet import Kubelet
from tests.k8s.nodes.node_life import (
    TAINTS,
    UNREACHABLE,
    Collect,
    Evict,
    NodeController,
    Reachable,
    Unreachable,
)
from tests.k8s.nodes.pod_life import Times
from tests.k8s.nodes.recorder import record, set_condition
from tests.k8s.server.objects import quotas
from tests.k8s.server.objects.errors import ApiError
from tests.k8s.server.objects.history import Change
from tests.k8s.server.objects.kinds import RESOURCES
from tests.k8s.server.objects.store import Store, timestamp

__all__ = ["ControlPlane"]

Object = Mapping[str, Any]
_QUIET = ("leases", "events")  # their changes give nobody anything to do
_NOT_OWNED = ("events", "leases", "nodes", "namespaces")


class ControlPlane:
    """All components of a cluster but its API server.

    Attributes
    ----------
    kubelets : dict of str to Kubelet
        By node; change it only in the loop's thread.
    is_scheduling : bool
        Off, pods stay Pending.
    order : callable
        In which order waiting pods of one priority are tried: the unkindest, unless a test wants another.
    """

    def __init__(self, store: Store, times: Times) -> None:
        self._store = store
        self._nodes = NodeController(times)
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.kubelets: dict[str, Kubelet] = {}
        self.is_scheduling = True
        self.order: scheduler.Order = scheduler.newest_first

    def wake(self) -> None:
        """Let a pass follow; may be called in any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Run until cancelled; kill all containers then."""
        self._loop = asyncio.get_running_loop()
        unsubscribe = self._store.subscribe(self._changed)
        try:
            while True:
                self._wake.clear()
                self._pass(self._store.clock())
                await self._rest()
        finally:
            unsubscribe()
            for kubelet in self.kubelets.values():
                kubelet.close()

    def _changed(self, change: Change) -> None:
        if change.resource not in _QUIET:
            self.wake()

    async def _rest(self) -> None:
        due = [kubelet.wake_at() for kubelet in self.kubelets.values()] + [self._nodes.wake_at()]
        next_at = min((at for at in due if at is not None), default=None)
        left_s = None if next_at is None else max(0.0, next_at - self._store.clock())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._wake.wait()

    def _pass(self, now: float) -> None:
        if self.is_scheduling:
            self._schedule(now)
        for kubelet in list(self.kubelets.values()):
            kubelet.step(now)
        self._watch_nodes(now)
        self._collect()
        self._serve_claims()
        self._serve_quotas()

    def _all(self, resource: str) -> list[Object]:
        """Return the stored objects themselves, which are never changed in place."""
        return list(self._store.history.all(resource).values())

    # -- the scheduler

    def _schedule(self, now: float) -> None:
        pods = [pod for pod in self._all("pods") if pod["spec"].get("schedulerName") == "default-scheduler"]
        claims = self._store.history.all("persistentvolumeclaims")
        for decision in scheduler.plan(self._all("nodes"), pods, claims, self.order):
            with contextlib.suppress(ApiError):  # the pod has just gone, or changed: the next pass sees that
                self._carry_out(decision, now)

    def _carry_out(self, decision: scheduler.Decision, now: float) -> None:
        match decision:
            case scheduler.Bind(pod=pod, node=node):
                name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
                self._store.bind(name, node, namespace)
                text = f"Successfully assigned {namespace}/{name} to {node}"
                record(self._store, pod, "Scheduled", text, component="default-scheduler")
            case scheduler.Unschedulable(pod=pod, message=message, nominated=nominated):
                self._explain(pod, message, nominated, now)
            case scheduler.Preempt(victim=victim, preemptor=preemptor, node=node):
                self._disrupt(victim, "PreemptionByScheduler", scheduler.PREEMPTED, now)
                text = f"Preempted by pod {preemptor['metadata']['uid']} on node {node}"
                record(self._store, victim, "Preempted", text, component="default-scheduler")

    def _explain(self, pod: Object, message: str, nominated: str | None, now: float) -> None:
        """Write condition and nomination in one change, as the original does."""
        others = [one for one in pod["status"].get("conditions") or [] if one["type"] != "PodScheduled"]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(now),
        }
        patch = {"status": {"conditions": [*others, condition], "nominatedNodeName": nominated}}
        metadata = pod["metadata"]
        self._store.patch("pods", metadata["name"], patch, metadata["namespace"], subresource="status")
        record(self._store, pod, "FailedScheduling", message, is_warning=True, component="default-scheduler")

    def _disrupt(self, pod: Object, reason: str, message: str, now: float) -> None:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        set_condition(self._store, pod, condition, now)
        metadata = pod["metadata"]
        self._store.delete("pods", metadata["name"], metadata["namespace"], uid=metadata["uid"])

    # -- the node controller

    def _watch_nodes(self, now: float) -> None:
        leases = self._store.history.all("leases")
        renewals = {
            name: str(lease["spec"].get("renewTime"))
            for (namespace, name), lease in leases.items()
            if namespace == "kube-node-lease"
        }
        for decision in self._nodes.step(self._all("nodes"), self._all("pods"), renewals, now):
            with contextlib.suppress(ApiError):
                self._heed(decision, now)

    def _heed(self, decision: Unreachable | Reachable | Evict | Collect, now: float) -> None:
        match decision:
            case Unreachable(node=node, pods=pods):
                why = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
                self._set_ready(node, "Unknown", *why, now)
                added = [{**taint, "timeAdded": timestamp(now)} for taint in TAINTS]
                self._set_taints(node, lambda taints: [*taints, *added])
                for pod in pods:
                    if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                        set_condition(self._store, pod, {"type": "Ready", "status": "False"}, now)
                        text = "Node is not ready"
                        record(
                            self._store,
                            pod,
                            "NodeNotReady",
                            text,
                            is_warning=True,
                            component="node-controller",
                        )
            case Reachable(node=node):
                self._set_ready(node, "True", "KubeletReady", "kubelet is posting ready status", now)
                self._set_taints(node, lambda taints: [one for one in taints if one["key"] != UNREACHABLE])
            case Evict(pod=pod):
                message = "Taint manager: deleting due to NoExecute taint"
                text = f"Marking for deletion Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
                record(self._store, pod, "TaintManagerEviction", text, component="taint-eviction-controller")
                self._disrupt(pod, "DeletionByTaintManager", message, now)
            case Collect(pod=pod):
                metadata = pod["metadata"]
                self._store.delete(
                    "pods", metadata["name"], metadata["namespace"], grace_s=0, uid=metadata["uid"]
                )

    def _set_ready(self, node: str, status: str, reason: str, message: str, now: float) -> None:
        at = timestamp(now)
        ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
        ready |= {"lastHeartbeatTime": at, "lastTransitionTime": at}
        self._store.patch("nodes", node, {"status": {"conditions": [ready]}}, subresource="status")

    def _set_taints(self, node: str, change: Any) -> None:
        taints = self._store.get("nodes", node)["spec"].get("taints") or []
        self._store.patch("nodes", node, {"spec": {"taints": change(taints)}})

    # -- the collectors

    def _collect(self) -> None:
        owned = [(name, one) for name in RESOURCES if name not in _NOT_OWNED for one in self._all(name)]
        resource_of = {one["metadata"]["uid"]: name for name, one in owned}
        objects = [one for _, one in owned]
        lost = garbage_collector.orphans([*objects, *self._all("nodes"), *self._all("namespaces")])
        namespaces = self._all("namespaces")
        inside, empty = garbage_collector.remains(namespaces, objects)
        for one in (*lost, *inside, *garbage_collector.dependents_first(objects)):
            metadata = one["metadata"]
            resource = resource_of[metadata["uid"]]
            with contextlib.suppress(ApiError):
                self._store.delete(
                    resource, metadata["name"], metadata.get("namespace", ""), uid=metadata["uid"]
                )
        for one in garbage_collector.released(objects):
            self._release(resource_of[one["metadata"]["uid"]], one)
        for name in empty:
            with contextlib.suppress(ApiError):
                namespace = self._store.get("namespaces", name)
                self._store.update(
                    "namespaces", {**namespace, "spec": {"finalizers": []}}, subresource="finalize"
                )

    def _release(self, resource: str, one: Object) -> None:
        metadata = one["metadata"]
        left = [name for name in metadata["finalizers"] if name != garbage_collector.FOREGROUND]
        patch = {"metadata": {"finalizers": left or None}}
        with contextlib.suppress(ApiError):
            self._store.patch(resource, metadata["name"], patch, metadata.get("namespace", ""))

    def _serve_claims(self) -> None:
        """Bind every volume claim: a kubelet makes a folder for it."""
        for claim in self._all("persistentvolumeclaims"):
            if (claim.get("status") or {}).get("phase") != "Bound":
                metadata, patch = claim["metadata"], {"status": {"phase": "Bound"}}
                where = ("persistentvolumeclaims", metadata["name"], patch, metadata["namespace"])
                with contextlib.suppress(ApiError):
                    self._store.patch(*where, subresource="status")

    def _serve_quotas(self) -> None:
        """Show what is used of every quota."""
        for quota in self._all("resourcequotas"):
            metadata = quota["metadata"]
            pods = [one for one in self._all("pods") if one["metadata"]["namespace"] == metadata["namespace"]]
            status = {"hard": quota["spec"].get("hard") or {}, "used": quotas.used(quota, pods)}
            if quota.get("status") != status:
                where = ("resourcequotas", metadata["name"], {"status": status}, metadata["namespace"])
                with contextlib.suppress(ApiError):
                    self._store.patch(*where, subresource="status")

"""Which pod runs where, as the default scheduler of Kubernetes decides it.

The core is one pure function of what the API shows. Pods that wait are tried by priority; among equals nobody may rely
on any order, since the original tries a pod again after a back-off of its own: so the order is given. A pod that
fits nowhere gets the reason as its PodScheduled condition and an event. If it may preempt, the node is chosen
where its victims matter least; the pod is *nominated* for it, the victims are marked and deleted, and a later
round binds the pod, as soon as the victims have ended (an ended pod occupies nothing, even while its object is
still there). Until then what the nominated pod asks is kept free from pods of lower priority.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from tests.k8s.server.objects.quantities import add, number, pod_requests

__all__ = [
    "PREEMPTED",
    "Bind",
    "Decision",
    "Order",
    "Preempt",
    "Unschedulable",
    "newest_first",
    "oldest_first",
    "plan",
    "tolerates",
]

Object = Mapping[str, Any]

PREEMPTED = "default-scheduler: preempting to accommodate a higher priority pod"
_UNRESOLVABLE = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, kw_only=True)
class Bind:
    """Bind the pod to the node."""

    pod: Object
    node: str


@dataclass(frozen=True, kw_only=True)
class Unschedulable:
    """Say in the pod's status and in an event why it waits, and for which node it is nominated, if for any."""

    pod: Object
    message: str
    nominated: str | None = None


@dataclass(frozen=True, kw_only=True)
class Preempt:
    """Mark a victim as disrupted, then delete it with its own grace."""

    victim: Object
    preemptor: Object
    node: str


Decision = Bind | Unschedulable | Preempt


Order = Callable[[Sequence[Object]], Sequence[Object]]


def oldest_first(pods: Sequence[Object]) -> Sequence[Object]:
    """Return waiting pods by age."""
    return sorted(pods, key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), _serial(pod)))


def newest_first(pods: Sequence[Object]) -> Sequence[Object]:
    """Return waiting pods in the order that is worst for who was created first."""
    return oldest_first(pods)[::-1]


def plan(
    nodes: Iterable[Object],
    pods: Iterable[Object],
    claims: Iterable[tuple[str, str]],
    order: Order = oldest_first,
) -> list[Decision]:
    """Decide about every pod that waits.

    Parameters
    ----------
    nodes, pods : iterables of objects of the API
    claims : iterable of (namespace, name)
        The volume claims that exist.
    order : callable
        In which order pods of the same priority are tried.

    Returns
    -------
    list
        Decisions in the order in which they are to be carried out; none that would change nothing.
    """
    pods = list(pods)
    round_ = _Round(list(map(_Node.of, nodes)), pods, set(claims))
    waiting = sorted(order([pod for pod in pods if _waits(pod)]), key=lambda pod: -_priority(pod))
    return [decision for pod in waiting for decision in round_.decide(pod)]


@dataclass
class _Node:
    """A node in the course of a round; `pods` are those that occupy it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Object]
    unschedulable: bool
    capacity: Mapping[str, Decimal]
    pods: list[Object] = field(default_factory=list)

    @staticmethod
    def of(node: Object) -> "_Node":
        spec, status = node.get("spec") or {}, node.get("status") or {}
        amounts = status.get("allocatable") or status.get("capacity") or {}
        return _Node(
            node["metadata"]["name"],
            node["metadata"].get("labels") or {},
            spec.get("taints") or [],
            bool(spec.get("unschedulable")),
            {resource: number(quantity) for resource, quantity in amounts.items()},
        )

    def refusals(self, pod: Object) -> list[str]:
        """Return why the pod may never run here, whatever else does."""
        if self.unschedulable:
            return ["node(s) were unschedulable"]
        if any(not _tolerated(taint, pod) for taint in self.taints if taint["effect"] != "PreferNoSchedule"):
            return ["node(s) had untolerated taint(s)"]
        if not _selects(pod, self.labels):
            return ["node(s) didn't match Pod's node affinity/selector"]
        return []

    def shortages(self, pod: Object) -> list[str]:
        """Return which resources of it do not suffice beside the pods that are on it."""
        used = add(*map(pod_requests, self.pods))
        none = Decimal(0)
        return [
            "Too many pods" if resource == "pods" else f"Insufficient {resource}"
            for resource, amount in pod_requests(pod).items()
            if amount > none and used.get(resource, none) + amount > self.capacity.get(resource, none)
        ]

    def without(self, pods: Iterable[Object]) -> "_Node":
        uids = {_uid(pod) for pod in pods}
        return replace(self, pods=[pod for pod in self.pods if _uid(pod) not in uids])

    def with_(self, pods: Iterable[Object]) -> "_Node":
        return replace(self, pods=[*self.pods, *pods])


class _Round:
    """One pass over the pods that wait."""

    def __init__(self, nodes: list[_Node], pods: list[Object], claims: set[tuple[str, str]]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._claims = claims
        self._nominated: dict[str, list[Object]] = {}
        self._preempted: set[str] = set()
        for pod in pods:
            name = pod["spec"].get("nodeName")
            if name in self._nodes and not _ended(pod):
                self._nodes[name].pods.append(pod)
            elif _waits(pod) and (wanted := (pod.get("status") or {}).get("nominatedNodeName")):
                self._nominated.setdefault(wanted, []).append(pod)

    def decide(self, pod: Object) -> list[Decision]:
        if missing := self._missing_claim(pod):
            return self._refuse(pod, f'persistentvolumeclaim "{missing}" not found', _UNRESOLVABLE)
        unfit: dict[str, list[str]] = {}
        for node in self._in_order(pod):
            unfit[node.name] = node.refusals(pod) or self._beside_nominated(node, pod).shortages(pod)
            if not unfit[node.name]:
                node.pods.append(pod)
                self._forget_nomination(pod)
                return [Bind(pod=pod, node=node.name)]
        return self._explain_or_preempt(pod, unfit)

    def _missing_claim(self, pod: Object) -> str | None:
        for volume in pod["spec"].get("volumes") or []:
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name and (pod["metadata"].get("namespace", "default"), name) not in self._claims:
                return str(name)
        return None

    def _in_order(self, pod: Object) -> list[_Node]:
        """Return the nodes, the nominated one first, then the emptiest."""
        nominated = (pod.get("status") or {}).get("nominatedNodeName")
        return sorted(
            self._nodes.values(), key=lambda node: (node.name != nominated, len(node.pods), node.name)
        )

    def _beside_nominated(self, node: _Node, pod: Object) -> _Node:
        others = [
            one
            for one in self._nominated.get(node.name, [])
            if _uid(one) != _uid(pod) and _priority(one) >= _priority(pod)
        ]
        return node.with_(others)

    def _forget_nomination(self, pod: Object) -> None:
        for name, pods in self._nominated.items():
            self._nominated[name] = [one for one in pods if _uid(one) != _uid(pod)]

    # -- a pod that fits nowhere

    def _explain_or_preempt(self, pod: Object, unfit: Mapping[str, list[str]]) -> list[Decision]:
        counts = Counter(reason for reasons in unfit.values() for reason in reasons)
        why = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
        if not self._nodes:
            return self._say(pod, "no nodes available to schedule pods")
        if pod["spec"].get("preemptionPolicy") == "Never":
            return self._refuse(pod, why, None)
        if self._victims_are_leaving(pod):
            return []
        best = self._cheapest(pod)
        if best is None:
            never = sum(1 for node in self._nodes.values() if node.refusals(pod))
            reasons = {_UNRESOLVABLE: never, _NO_VICTIMS: len(self._nodes) - never}
            return self._refuse(
                pod, why, ", ".join(sorted(f"{n} {text}" for text, n in reasons.items() if n))
            )
        return self._preempt(pod, best, f"{self._available()}: {why}.")

    def _preempt(self, pod: Object, best: tuple[_Node, list[Object]], message: str) -> list[Decision]:
        """Nominate the pod. The victims go on occupying the node until they have ended."""
        node, victims = best
        self._forget_nomination(pod)
        self._nominated.setdefault(node.name, []).append(pod)
        staying = [victim for victim in victims if not self._is_leaving(victim)]
        self._preempted.update(map(_uid, staying))
        said = Unschedulable(pod=pod, message=message, nominated=node.name)
        return [said, *(Preempt(victim=victim, preemptor=pod, node=node.name) for victim in staying)]

    def _is_leaving(self, pod: Object) -> bool:
        return bool(pod["metadata"].get("deletionTimestamp")) or _uid(pod) in self._preempted

    def _victims_are_leaving(self, pod: Object) -> bool:
        node = self._nodes.get((pod.get("status") or {}).get("nominatedNodeName", ""))
        return node is not None and any(
            self._is_leaving(one) and _priority(one) < _priority(pod) for one in node.pods
        )

    def _cheapest(self, pod: Object) -> tuple[_Node, list[Object]] | None:
        """Return the node whose victims matter least, and them: the lowest highest priority, sum, number."""
        found = [
            (node, victims)
            for node in self._nodes.values()
            if not node.refusals(pod) and (victims := self._victims(node, pod)) is not None
        ]

        def cost(choice: tuple[_Node, list[Object]]) -> tuple[int, int, int, str]:
            priorities = [_priority(victim) for victim in choice[1]]
            return max(priorities), sum(priorities), len(priorities), choice[0].name

        return min(found, key=cost, default=None)

    def _victims(self, node: _Node, pod: Object) -> list[Object] | None:
        lower = [one for one in node.pods if _priority(one) < _priority(pod)]
        room = self._beside_nominated(node, pod).without(lower)
        if not lower or room.shortages(pod):
            return None
        victims = []
        for one in sorted(lower, key=lambda one: (self._is_leaving(one), -_priority(one), _started(one))):
            if room.with_([one]).shortages(pod):
                victims.append(one)
            else:
                room = room.with_([one])
        return victims

    def _refuse(self, pod: Object, why: str, preemption: str | None) -> list[Decision]:
        if preemption is None:
            tail = "preemption: not eligible due to preemptionPolicy=Never."
        else:
            if not preemption[0].isdigit():
                preemption = f"{len(self._nodes)} {preemption}"
            tail = f"no new claims to deallocate, preemption: {self._available()}: {preemption}."
        return self._say(pod, f"{self._available()}: {why}. {tail}")

    def _available(self) -> str:
        return f"0/{len(self._nodes)} nodes are available"

    @staticmethod
    def _say(pod: Object, message: str) -> list[Decision]:
        status = pod.get("status") or {}
        said = {one["message"] for one in status.get("conditions") or [] if one["type"] == "PodScheduled"}
        if message in said and not status.get("nominatedNodeName"):
            return []
        return [Unschedulable(pod=pod, message=message)]


def _waits(pod: Object) -> bool:
    return not (pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp") or _ended(pod))


def _ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _priority(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _serial(pod: Object) -> int:
    """Return where a pod stands among those of the same second."""
    return int(pod["metadata"].get("resourceVersion") or 0)


def _started(pod: Object) -> str:
    return str((pod.get("status") or {}).get("startTime") or "")


def _tolerated(taint: Object, pod: Object) -> bool:
    return any(tolerates(toleration, taint) for toleration in pod["spec"].get("tolerations") or [])


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration is meant for a taint."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return str(toleration.get("value", "")) == str(taint.get("value", ""))


def _selects(pod: Object, labels: Mapping[str, str]) -> bool:
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (affinity or {}).get("nodeSelectorTerms")
    return terms is None or any(all(_matches(one, labels) for one in _expressions(term)) for term in terms)


def _expressions(term: Object) -> Sequence[Object]:
    return term.get("matchExpressions") or []


def _matches(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise ValueError(f"operator {expression['operator']!r} of a node selector is not emulated")

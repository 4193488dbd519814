"""Whether a job's pods fit on the nodes of a cluster as they are now.  Pure: plain data of the API gives an answer.

The scheduler decides in the end: affinities and spreading are its affair, and pods may come and go meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from edlz.k8s.flags.resources import number_of

__all__ = ["Node", "Quota", "Room", "nodes_of", "quotas_of", "room_for"]

_REPELLING = ("NoSchedule", "NoExecute")
Amounts = Mapping[str, str]


@dataclass(slots=True)
class Node:
    """A node that takes new pods.

    Attributes
    ----------
    capacity : dict
        What its pods may use in all.
    free : dict
        What is left.
    """

    name: str
    architecture: str
    capacity: dict[str, Fraction]
    free: dict[str, Fraction]


@dataclass(slots=True)
class Quota:
    """What is left of a quota of the namespace, as far as it bounds pods and what they request."""

    name: str
    left: dict[str, Fraction]

    def lacks(self, amounts: Mapping[str, Fraction]) -> str:
        """Return what a pod would be too much for; nothing if it is not."""
        asked = _of_quota(amounts)
        return next((name for name, left in self.left.items() if asked.get(name, 0) > left), "")

    def take(self, amounts: Mapping[str, Fraction]) -> None:
        """Count a pod."""
        for name, amount in _of_quota(amounts).items():
            if name in self.left:
                self.left[name] -= amount


@dataclass(frozen=True, slots=True)
class Room:
    """What would fit now.

    Attributes
    ----------
    workers : int
        How many of the workers.
    lacking : str
        The resource that the next pod lacks everywhere, or the quota; nothing if all fit.
    impossible : tuple, optional
        What no node will ever have: role, resource, asked for, the largest node's.
    is_master_in : bool
        Whether master and parameter servers fit.
    """

    workers: int
    lacking: str = ""
    impossible: tuple[str, str, str, str] | None = None
    is_master_in: bool = True


def nodes_of(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Return the nodes that take new pods, with what the pods there leave of them."""
    found: dict[str, Node] = {}
    for node in nodes:
        spec, status = node.get("spec") or {}, node.get("status") or {}
        if spec.get("unschedulable") or any(t.get("effect") in _REPELLING for t in spec.get("taints") or ()):
            continue
        capacity = _numbers(status.get("allocatable") or status.get("capacity") or {})
        architecture = str((status.get("nodeInfo") or {}).get("architecture", ""))
        name = str(node["metadata"]["name"])
        found[name] = Node(name, architecture, capacity, dict(capacity))
    for pod in pods:
        spec, phase = pod.get("spec") or {}, (pod.get("status") or {}).get("phase")
        node_here = found.get(str(spec.get("nodeName", "")))
        if node_here is not None and phase not in ("Succeeded", "Failed"):
            _take(node_here, _requests(spec))
    return list(found.values())


def quotas_of(quotas: Iterable[Mapping[str, Any]]) -> list[Quota]:
    """Return what is left of quotas."""
    found = []
    for quota in quotas:
        status = quota.get("status") or {}
        used = _numbers(status.get("used") or {})
        hard = _numbers(status.get("hard") or {})
        left = {name: most - used.get(name, Fraction(0)) for name, most in hard.items()}
        found.append(Quota(str(quota["metadata"]["name"]), left))
    return found


def room_for(
    nodes: Sequence[Node],
    first: Sequence[tuple[str, Amounts]],
    worker: Amounts,
    workers: int,
    quotas: Sequence[Quota] = (),
) -> Room:
    """Return how many workers fit, after the pods that go before them.

    Parameters
    ----------
    nodes, quotas : sequence of Node, sequence of Quota
        They are filled, so they serve once.
    first : sequence
        Role and requests of master and parameter servers.
    worker : Amounts
        Requests of a worker.
    """
    for role, amounts in (*first, ("worker", worker)):
        beyond = _impossible(nodes, role, amounts)
        if beyond is not None:
            return Room(0, beyond[1], beyond, is_master_in=False)
    for _, amounts in first:
        lacking = _place(nodes, quotas, _numbers(amounts))
        if lacking:
            return Room(0, lacking, is_master_in=False)
    for count in range(workers):
        lacking = _place(nodes, quotas, _numbers(worker))
        if lacking:
            return Room(count, lacking)
    return Room(workers)


def _impossible(nodes: Sequence[Node], role: str, amounts: Amounts) -> tuple[str, str, str, str] | None:
    for name, amount in amounts.items():
        most = max((node.capacity.get(name, Fraction(0)) for node in nodes), default=Fraction(0))
        if nodes and number_of(amount) > most:
            return role, name, amount, _text(name, most)
    return None


def _place(nodes: Sequence[Node], quotas: Sequence[Quota], amounts: Mapping[str, Fraction]) -> str:
    """Put a pod on the node where most is left; return what it lacks if it fits nowhere."""
    for quota in quotas:
        if lacking := quota.lacks(amounts):
            return f"quota {quota.name}: {lacking}"
    fitting = [
        node for node in nodes if all(node.free.get(name, 0) >= amount for name, amount in amounts.items())
    ]
    if fitting:
        _take(max(fitting, key=lambda node: node.free.get("cpu", Fraction(0))), amounts)
        for quota in quotas:
            quota.take(amounts)
        return ""
    return next(
        (name for name, amount in amounts.items() if all(node.free.get(name, 0) < amount for node in nodes)),
        "cpu",
    )


def _take(node: Node, amounts: Mapping[str, Fraction]) -> None:
    for name, amount in amounts.items():
        node.free[name] = node.free.get(name, Fraction(0)) - amount


def _of_quota(amounts: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return what a pod counts for, by the names that quotas have for it."""
    counted = dict.fromkeys(("pods", "count/pods"), Fraction(1))
    return {**counted, **amounts, **{f"requests.{name}": amount for name, amount in amounts.items()}}


def _requests(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        for name, amount in _numbers(resources.get("requests") or {}).items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _numbers(amounts: Mapping[str, Any]) -> dict[str, Fraction]:
    return {name: number_of(str(amount)) for name, amount in amounts.items()}


def _text(name: str, amount: Fraction) -> str:
    if name in ("memory", "ephemeral-storage"):
        mebibytes = int(amount) >> 20
        return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes >> 10}Gi"
    return f"{float(amount):g}"

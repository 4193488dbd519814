"""Kubernetes quantities as exact numbers, and what a pod asks of a node."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

__all__ = ["add", "number", "pod_requests"]

_SUFFIXES = {
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(["", "Ki", "Mi", "Gi", "Ti", "Pi"])},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(["k", "M", "G", "T", "P"], start=1)},
    "m": Decimal("0.001"),
}

Amounts = Mapping[str, Decimal]


def number(quantity: str | int | float) -> Decimal:
    """Return a quantity such as 100m, 1.5 or 512Mi as a number."""
    text = str(quantity)
    digits = text.rstrip("kKMGTPim")
    return Decimal(digits) * _SUFFIXES[text[len(digits) :]]


def add(*amounts: Amounts) -> dict[str, Decimal]:
    """Return the sums by resource."""
    total: dict[str, Decimal] = {}
    for one in amounts:
        for resource, amount in one.items():
            total[resource] = total.get(resource, Decimal(0)) + amount
    return total


def pod_requests(pod: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what a pod occupies: the sum of its containers or its largest init container, and itself."""
    spec = pod["spec"]
    total = add(*(_requests(container) for container in spec["containers"]))
    for container in spec.get("initContainers", []):
        for resource, amount in _requests(container).items():
            total[resource] = max(total.get(resource, Decimal(0)), amount)
    return {**total, "pods": Decimal(1)}


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {resource: number(quantity) for resource, quantity in asked.items()}

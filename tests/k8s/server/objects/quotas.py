"""Quotas of a namespace: what its pods use of them, and which pod would be one too many.  Pure."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from tests.k8s.server.objects.quantities import add, number

__all__ = ["excess", "used"]

Object = Mapping[str, Any]
_COUNTED = ("pods", "count/pods")
_LIMITS = "limits."


def used(quota: Object, pods: Iterable[Object]) -> dict[str, str]:
    """Return what the pods of a namespace use of what a quota bounds; those that have ended use nothing."""
    total = add(*(_amounts(pod) for pod in pods if not _has_ended(pod)))
    return {name: _text(total.get(name, Decimal(0))) for name in quota["spec"].get("hard") or {}}


def excess(quota: Object, pods: Iterable[Object], pod: Object) -> str:
    """Return why a further pod is one too many, in the words of the API server; nothing if it is not."""
    hard, taken, asked = quota["spec"].get("hard") or {}, used(quota, pods), _amounts(pod)
    over = sorted(
        name for name in hard if name in asked and number(taken[name]) + asked[name] > number(hard[name])
    )
    if not over:
        return ""
    parts = (
        ("requested", {name: _text(asked[name]) for name in over}),
        ("used", taken),
        ("limited", hard),
    )
    told = (f"{word}: {','.join(f'{name}={amounts[name]}' for name in over)}" for word, amounts in parts)
    return f"exceeded quota: {quota['metadata']['name']}, {', '.join(told)}"


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _amounts(pod: Object) -> dict[str, Decimal]:
    amounts = dict.fromkeys(_COUNTED, Decimal(1))
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        limits = {name: number(amount) for name, amount in (resources.get("limits") or {}).items()}
        requests = limits | {
            name: number(amount) for name, amount in (resources.get("requests") or {}).items()
        }
        named = {f"requests.{name}": amount for name, amount in requests.items()}
        named |= {_LIMITS + name: amount for name, amount in limits.items()}
        amounts = add(amounts, requests, named)
    return amounts


def _text(amount: Decimal) -> str:
    return str(int(amount)) if amount == int(amount) else f"{int(amount * 1000)}m"

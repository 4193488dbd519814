"""What is to be deleted because what it belonged to is gone."""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["FOREGROUND", "dependents_first", "orphans", "released", "remains"]

Object = Mapping[str, Any]
FOREGROUND = "foregroundDeletion"


def orphans(objects: Iterable[Object]) -> list[Object]:
    """Return the objects none of whose owners exists (by uid) and that are not being deleted already.

    An owner that is being deleted exists until its object is gone. An object with several owners stays as long as
    one of them does. The deletion is with the object's own grace.
    """
    objects = list(objects)
    alive = {one["metadata"]["uid"] for one in objects}
    return [
        one
        for one in objects
        if (owners := one["metadata"].get("ownerReferences"))
        and not one["metadata"].get("deletionTimestamp")
        and not any(owner["uid"] in alive for owner in owners)
    ]


def remains(namespaces: Iterable[Object], objects: Iterable[Object]) -> tuple[list[Object], list[str]]:
    """Return the objects to delete from namespaces that are being deleted, and the namespaces that are empty."""
    ending = {one["metadata"]["name"] for one in namespaces if one["metadata"].get("deletionTimestamp")}
    inside = [one for one in objects if one["metadata"].get("namespace") in ending]
    full = {one["metadata"]["namespace"] for one in inside}
    to_delete = [one for one in inside if not one["metadata"].get("deletionTimestamp")]
    return to_delete, sorted(ending - full)


def dependents_first(objects: Iterable[Object]) -> list[Object]:
    """Return what is to be deleted before owners that are being deleted in the foreground."""
    objects = list(objects)
    ending = {one["metadata"]["uid"] for one in objects if _is_in_foreground(one)}
    return [
        one
        for one in objects
        if not one["metadata"].get("deletionTimestamp") and ending.intersection(_owners(one))
    ]


def released(objects: Iterable[Object]) -> list[Object]:
    """Return the owners deleted in the foreground on which nothing that blocks depends any more."""
    objects = list(objects)
    held = {
        owner["uid"]
        for one in objects
        for owner in one["metadata"].get("ownerReferences") or []
        if owner.get("blockOwnerDeletion")
    }
    return [one for one in objects if _is_in_foreground(one) and one["metadata"]["uid"] not in held]


def _is_in_foreground(one: Object) -> bool:
    metadata = one["metadata"]
    return bool(metadata.get("deletionTimestamp")) and FOREGROUND in (metadata.get("finalizers") or [])


def _owners(one: Object) -> list[str]:
    return [owner["uid"] for owner in one["metadata"].get("ownerReferences") or []]

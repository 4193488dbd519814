"""What is to be deleted because what it belonged to is gone."""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["orphans", "remains"]

Object = Mapping[str, Any]


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

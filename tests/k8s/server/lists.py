"""Lists: revisions, pages and their tokens."""

import asyncio
import base64
import json
from typing import Any

from tests.k8s.server.objects.errors import ApiError, bad_request, expired, too_large_revision
from tests.k8s.server.objects.history import Object
from tests.k8s.server.objects.kinds import Resource
from tests.k8s.server.objects.store import Store

__all__ = ["list_objects", "parse_revision", "reach_revision", "without_type"]

_POLL_S = 0.02


def parse_revision(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: '
            f'parsing "{text}": invalid syntax'
        )
    return int(text)


async def reach_revision(store: Store, revision: int, wait_s: float) -> None:
    """Wait until the store has a revision, but not for long, as the real server does."""
    end = asyncio.get_running_loop().time() + wait_s
    while store.revision < revision:
        if asyncio.get_running_loop().time() >= end:
            raise too_large_revision(revision, store.revision)
        await asyncio.sleep(_POLL_S)


async def list_objects(
    store: Store, row: Resource, namespace: str | None, query: Any, wait_s: float
) -> dict[str, Any]:
    """Answer a list request; `query` holds the URL's parameters."""
    wanted = parse_revision(query.get("resourceVersion", ""))
    limit = int(query.get("limit", 0))
    is_exact = query.get("resourceVersionMatch") == "Exact"
    if query.get("continue"):
        wanted, start = _open_token(query["continue"])
        is_exact = True
    else:
        start = ""
    if wanted:
        await reach_revision(store, wanted, wait_s)
    with store.history.lock:
        revision = wanted if is_exact and wanted else store.revision
        if revision < store.history.oldest:
            raise _expired_page() if start else expired(revision, store.history.oldest)
        objects = store.history.at(row.name, revision)
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    items = store.select(row, objects, namespace, labels, fields)
    items = [item for item in items if _path(item, namespace) >= start]
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if limit and len(items) > limit and query.get("resourceVersion") != "0":
        metadata["continue"] = _token(revision, _path(items[limit - 1], namespace))
        if not labels and not fields:
            metadata["remainingItemCount"] = len(items) - limit
        items = items[:limit]
    return {
        "kind": f"{row.kind}List",
        "apiVersion": row.api_version,
        "metadata": metadata,
        "items": [without_type(item) for item in items],
    }


def without_type(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _path(obj: Object, namespace: str | None) -> str:
    metadata = obj["metadata"]
    inner = f"/{metadata['namespace']}" if namespace is None and "namespace" in metadata else ""
    return f"{inner}/{metadata['name']}"


def _token(revision: int, last: str) -> str:
    content = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": f"{last}\0"}, separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def _open_token(token: str) -> tuple[int, str]:
    try:
        content = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError:
        raise bad_request("invalid continue token: continue key is not valid: illegal base64 data") from None
    try:
        fields = json.loads(content)
        return int(fields["rv"]), str(fields["start"])
    except (ValueError, KeyError, TypeError):
        first = chr(content[0]) if content else ""
        raise bad_request(
            f"invalid continue token: continue key is not valid: invalid character '{first}' looking for "
            "beginning of value"
        ) from None


def _expired_page() -> ApiError:
    return ApiError(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can start a new "
        "list without the continue parameter.",
    )

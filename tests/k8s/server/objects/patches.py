"""The three patches of the Kubernetes API: merge (RFC 7386), JSON (RFC 6902), strategic merge."""

from collections.abc import Sequence
from typing import Any

from tests.k8s.server.objects.errors import ApiError, bad_request
from tests.k8s.server.objects.schema import Schema, resolve

__all__ = ["json_patch", "merge_patch", "strategic_patch"]


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with the patch merged in; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_patch(target: Any, patch: Any, schema: Schema) -> Any:
    """Return the target with the patch merged in; lists with a merge key are merged item by item."""
    _, schema = resolve(schema)
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        field = _field(schema, key)
        if key == "$retainKeys":
            merged = {name: item for name, item in merged.items() if name in value}
        elif key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [item for item in merged.get(name, []) if item not in value]
        elif key.startswith("$setElementOrder/"):
            continue
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, list) and "merge" in field.get("x-kubernetes-patch-strategy", ""):
            merged[key] = _merge_lists(merged.get(key, []), value, field)
        else:
            merged[key] = strategic_patch(merged.get(key), value, field)
    return merged


def _field(schema: Schema, key: str) -> Schema:
    if "properties" in schema:
        found: Schema = schema["properties"].get(key, {})
    else:
        found = schema.get("additionalProperties", {})
    return found if isinstance(found, dict) else {}


def _merge_lists(target: Sequence[Any], patch: Sequence[Any], field: Schema) -> list[Any]:
    merge_key = field.get("x-kubernetes-patch-merge-key")
    if merge_key is None:
        return [*target, *(item for item in patch if item not in target)]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    merged = list(target)
    for item in patch:
        if merge_key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {merge_key}")
        places = [at for at, old in enumerate(merged) if old.get(merge_key) == item[merge_key]]
        if item.get("$patch") == "delete":
            merged = [old for at, old in enumerate(merged) if at not in places]
        elif places:
            merged[places[0]] = strategic_patch(merged[places[0]], item, field["items"])
        else:
            merged.append(strategic_patch({}, item, field["items"]))
    return merged


def json_patch(target: Any, operations: Any) -> Any:
    """Apply the operations, in place on a target that the caller has copied; return the result."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    for operation in operations:
        try:
            target = _apply(target, operation)
        except (KeyError, IndexError, TypeError, ValueError):
            raise _rejected() from None
    return target


def _rejected() -> ApiError:
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message, {})


def _apply(target: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation["op"], _parts(operation["path"])
    if kind == "test":
        if _at(target, path) != operation["value"]:
            raise _rejected()
        return target
    if kind in ("move", "copy"):
        source = _parts(operation["from"])
        value = _at(target, source)
        if kind == "move":
            _remove(target, source)
    elif kind in ("add", "replace"):
        value = operation["value"]
        if kind == "replace":
            _at(target, path)
    elif kind == "remove":
        _remove(target, path)
        return target
    else:
        raise ValueError(kind)
    return _put(target, path, value, is_insert=kind != "replace")


def _parts(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(path)
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _at(target: Any, path: list[str]) -> Any:
    for part in path:
        target = target[int(part)] if isinstance(target, list) else target[part]
    return target


def _remove(target: Any, path: list[str]) -> None:
    holder = _at(target, path[:-1])
    del holder[int(path[-1]) if isinstance(holder, list) else path[-1]]


def _put(target: Any, path: list[str], value: Any, *, is_insert: bool) -> Any:
    if not path:
        return value
    holder = _at(target, path[:-1])
    if not isinstance(holder, list):
        holder[path[-1]] = value
    elif path[-1] == "-":
        holder.append(value)
    elif is_insert:
        holder.insert(int(path[-1]), value)
    else:
        holder[int(path[-1])] = value
    return target

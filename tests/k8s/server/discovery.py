"""What the server says of itself: its version, its API groups, its resources."""

from typing import Any

from tests.k8s.server.objects.kinds import RESOURCES, Resource

__all__ = ["VERSION", "answer"]

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "98b35193b2ac7a23a673325f5e9b830ecd5ba406",
    "gitTreeState": "clean",
    "buildDate": "2026-08-21T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def answer(path: str) -> dict[str, Any] | None:
    """Return the answer to a GET of one of the fixed paths, or None."""
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _groups()]}
    if path == "/api/v1":
        return _resource_list("", "v1")
    if path == "/openapi/v3":
        return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}?hash=0"} for p in _group_paths()}}
    if path.removeprefix("/openapi/v3/") in _group_paths():
        return _open_api(path.removeprefix("/openapi/v3/"))
    match path.removeprefix("/apis/").split("/"):
        case [group] if group in _groups():
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(group)
        case [group, "v1"] if group in _groups():
            return _resource_list(group, "v1")
    return None


def _groups() -> list[str]:
    return sorted({row.group for row in RESOURCES.values()} - {""})


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(group: str, version: str) -> dict[str, Any]:
    resources: list[dict[str, Any]] = []
    for row in sorted(RESOURCES.values(), key=lambda row: row.name):
        if row.group == group:
            resources.append(_entry(row))
            resources += [_sub_entry(row, name) for name in row.subresources]
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def _entry(row: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": row.name,
        "singularName": row.kind.lower(),
        "namespaced": row.is_namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    if row.storage_hash:
        entry["storageVersionHash"] = row.storage_hash
    return entry


def _sub_entry(row: Resource, name: str) -> dict[str, Any]:
    kinds = {"binding": "Binding", "eviction": "Eviction", "token": "TokenRequest"}
    verbs = {"status": ["get", "patch", "update"], "log": ["get"], "finalize": ["update"]}
    return {
        "name": f"{row.name}/{name}",
        "singularName": "",
        "namespaced": row.is_namespaced,
        "kind": kinds.get(name, row.kind),
        "verbs": verbs.get(name, ["create"]),
    }


# -- OpenAPI: only what kubectl looks for, which is that the server checks fields itself


def _group_paths() -> list[str]:
    return ["api/v1", *(f"apis/{group}/v1" for group in _groups())]


def _open_api(path: str) -> dict[str, Any]:
    group = "" if path == "api/v1" else path.split("/")[1]
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")
    ]
    paths = {}
    for row in RESOURCES.values():
        if row.group == group and "patch" in row.verbs:
            inner = "namespaces/{namespace}/" if row.is_namespaced else ""
            operation = {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {"group": group, "version": "v1", "kind": row.kind},
            }
            paths[f"/{path}/{inner}{row.name}/{{name}}"] = {"patch": operation}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.2"}, "paths": paths}

"""A stand-in for kubectl, for tests on machines without it: `python -m tests.k8s.kubectl get pods -l app=x`.

It knows the verbs that the tutorials show, `get`, `delete`, `apply` and `logs`, and prints what kubectl prints for
them.  The cluster is that of KUBECONFIG.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from kubernetes import config

from tests.k8s.server.objects.kinds import RESOURCES, Resource

__all__ = ["main"]

Object = dict[str, Any]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
GONE_S, POLL_S = 60.0, 0.05
_TAIL_LINES = 10  # that kubectl shows of each pod, where a selector names them


class Refused(Exception):
    """The server says no."""

    def __init__(self, status: Object) -> None:
        super().__init__(f"Error from server ({status.get('reason')}): {status.get('message')}")
        self.is_missing = status.get("code") == 404


class Server:
    """The API server of the current context, and its namespace."""

    def __init__(self, namespace: str | None) -> None:
        _, context = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
        self.namespace = namespace or context["context"].get("namespace", "default")
        self._client: Any = config.new_client_from_config()  # type: ignore[no-untyped-call]

    def path(self, row: Resource, name: str = "", *, is_everywhere: bool = False) -> str:
        start = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
        middle = f"/namespaces/{self.namespace}" if row.is_namespaced and not is_everywhere else ""
        return f"{start}{middle}/{row.name}" + (f"/{name}" if name else "")

    def call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        accept: str = "application/json",
        **query: Any,
    ) -> bytes:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        asked = self._client.param_serialize(
            method,
            path,
            query_params=[(name, value) for name, value in query.items() if value is not None],
            header_params={"Accept": accept, "Content-Type": kind},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self._client.call_api(*asked)
        content: bytes = answer.read() or b""
        if not 200 <= answer.status < 300:
            raise Refused(json.loads(content))
        return content

    def ask(self, method: str, path: str, body: Object | None = None, **query: Any) -> Object:
        found: Object = json.loads(self.call(method, path, body, **query))
        return found

    def names(self, row: Resource, selector: str) -> list[str]:
        found = self.ask("GET", self.path(row), labelSelector=selector)
        return [item["metadata"]["name"] for item in found["items"]]


def main(words: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(words)
    try:
        for line in _VERBS[asked.verb](Server(asked.namespace), asked):
            print(line, flush=True)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in _VERBS:
        verb = verbs.add_parser(name)
        verb.add_argument("-n", "--namespace")
        if name == "apply":
            verb.add_argument("-f", dest="file", type=Path, required=True)
            continue
        verb.add_argument("-l", dest="selector")
        if name != "logs":
            verb.add_argument("kind")
        if name == "logs":
            verb.add_argument("-p", "--previous", action="store_true")
        if name == "get":
            verb.add_argument("-A", "--all-namespaces", action="store_true")
        verb.add_argument("names", nargs="*")
    return parser


# -- verbs


def _get(server: Server, asked: argparse.Namespace) -> Iterator[str]:
    is_all = asked.kind == "all"
    rows = [row for row in RESOURCES.values() if "all" in row.categories] if is_all else [_kind(asked.kind)]
    where = asked.all_namespaces
    is_empty = True
    for row in rows:
        paths = [server.path(row, name) for name in asked.names] or [server.path(row, is_everywhere=where)]
        lines: list[list[str]] = []
        for path in paths:
            table = server.ask("GET", path, accept=TABLE, labelSelector=asked.selector)
            head = [column["name"].upper() for column in table["columnDefinitions"]]
            lines += [[*([_namespace(one)] if where else []), *one["cells"]] for one in table["rows"]]
        if lines:
            yield from _columns([[*(["NAMESPACE"] if where else []), *head], *lines])
            is_empty = False
    if is_empty:
        print(f"No resources found{'' if where else f' in {server.namespace} namespace.'}", file=sys.stderr)


def _delete(server: Server, asked: argparse.Namespace) -> Iterator[str]:
    row = _kind(asked.kind)
    names = server.names(row, asked.selector) if asked.selector else asked.names
    for name in names:
        try:
            server.ask("DELETE", server.path(row, name))
        except Refused as error:
            if error.is_missing and asked.selector:  # it went with its owner, which was among them
                continue
            raise
        yield f'{row.kind.lower()} "{name}" deleted'
    if not names:
        yield "No resources found"
    end = time.monotonic() + GONE_S
    while any(_exists(server, server.path(row, name)) for name in names) and time.monotonic() < end:
        time.sleep(POLL_S)


def _apply(server: Server, asked: argparse.Namespace) -> Iterator[str]:
    for obj in yaml.safe_load_all(asked.file.read_text()):
        row = next(row for row in RESOURCES.values() if row.kind == obj["kind"])
        name = obj["metadata"]["name"]
        title = f"{row.kind.lower()}{'.' + row.group if row.group else ''}/{name}"
        if not _exists(server, server.path(row, name)):
            server.ask("POST", server.path(row), obj)
            yield f"{title} created"
            continue
        before = server.ask("GET", server.path(row, name))
        after = server.ask("PATCH", server.path(row, name), obj)
        is_same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
        yield f"{title} {'unchanged' if is_same else 'configured'}"


def _logs(server: Server, asked: argparse.Namespace) -> Iterator[str]:
    row = RESOURCES["pods"]
    tail = _TAIL_LINES if asked.selector else None
    for name in server.names(row, asked.selector) if asked.selector else asked.names:
        query = {"tailLines": tail, "previous": "true" if asked.previous else None}
        yield from server.call("GET", f"{server.path(row, name)}/log", **query).decode().splitlines()


_VERBS = {"get": _get, "delete": _delete, "apply": _apply, "logs": _logs}


def _kind(word: str) -> Resource:
    for row in RESOURCES.values():
        if word in (row.name, row.kind.lower(), *row.short_names):
            return row
    raise Refused({"reason": "NotFound", "message": f'the server doesn\'t have a resource type "{word}"'})


def _exists(server: Server, path: str) -> bool:
    try:
        server.ask("GET", path)
    except Refused as error:
        if error.is_missing:
            return False
        raise
    return True


def _namespace(row: Object) -> str:
    return str(row["object"]["metadata"].get("namespace", ""))


def _columns(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        yield "   ".join(cells).rstrip()


if __name__ == "__main__":
    sys.exit(main())

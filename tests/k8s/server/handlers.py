"""The HTTP side of the emulated API server: one handler for all paths."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

from aiohttp import web

from tests.k8s.server import discovery
from tests.k8s.server.access import REVIEWING, Access, Action, User
from tests.k8s.server.faults import Faults
from tests.k8s.server.lists import list_objects
from tests.k8s.server.objects.errors import ApiError, bad_request
from tests.k8s.server.objects.history import Object
from tests.k8s.server.objects.kinds import Resource
from tests.k8s.server.objects.store import Store, copy_of, timestamp
from tests.k8s.server.pod_logs import Kubelet, log_of, log_text
from tests.k8s.server.port_forward import forward_port
from tests.k8s.server.requests import Target, parse_body, parse_path
from tests.k8s.server.tables import is_table_wanted, table_of
from tests.k8s.server.watches import Watch, WatchBroken

__all__ = ["Handlers"]

_PATCHES = {
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/json-patch+json": "json",
}
_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_MAX_BODY_BYTES = 3 * 2**20


class Handlers:
    """Answers requests from a store."""

    def __init__(self, store: Store, access: Access, faults: Faults) -> None:
        self._store, self._access, self._faults = store, access, faults
        self.kubelets: dict[str, Kubelet] = {}
        self.bookmark_interval_s = 10.0
        self.too_large_wait_s = 3.0
        self.requests: list[tuple[str, str]] = []  # method and path of all so far

    def application(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.on_response_prepare.append(self._date)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _date(self, _: web.Request, answer: web.StreamResponse) -> None:
        """Tell the time by the clock of the objects."""
        answer.headers["Date"] = formatdate(self._store.clock(), usegmt=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        try:
            if self._faults.delay_s:
                await asyncio.sleep(self._faults.delay_s)
            self._faults.check(request.method, request.path_qs)
            return await self._answer(request)
        except ApiError as error:
            return _json(error.status(), error.code, error.headers)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = self._access.user(request.headers.get("Authorization", ""))
        if request.path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        if request.method == "GET" and (fixed := discovery.answer(request.path.rstrip("/"))) is not None:
            return _json(fixed)
        target = parse_path(request.path)
        is_watch = request.query.get("watch") in ("1", "true")
        action = target.action(request.method, is_watch)
        self._access.check(user, action)
        if target.resource.group in REVIEWING and request.method == "POST":
            return _json(self._review(target.resource, user, await self._body(request, target)), 201)
        if action.verb == "watch":
            return await self._watch(request, target)
        if target.subresource == "log":
            return await self._log(request, target)
        if target.subresource == "portforward":
            return await forward_port(
                request, self._store.stored(target.resource, target.name, target.namespace or "")
            )
        operation = getattr(self, f"_{action.verb}", None)
        if operation is None or not _is_allowed(target, action.verb):
            message = "the server does not allow this method on the requested resource"
            raise ApiError(405, "MethodNotAllowed", message, {})
        answer: web.Response = await operation(request, target)
        return answer

    # -- reading

    async def _get(self, request: web.Request, target: Target) -> web.Response:
        found = self._store.stored(target.resource, target.name, target.namespace or "")
        return _json(_shown(request, target.resource, found))

    async def _list(self, request: web.Request, target: Target) -> web.Response:
        row, namespace = target.resource, target.namespace
        found = await list_objects(self._store, row, namespace, request.query, self.too_large_wait_s)
        return _json(_shown(request, row, found))

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        watch = Watch(
            self._store,
            self._faults,
            target.resource,
            target.namespace,
            request.query,
            self.bookmark_interval_s,
        )
        await watch.open(self.too_large_wait_s)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        lines = watch.lines()
        try:
            async for line in lines:
                await response.write(line)
        except WatchBroken:
            _cut(request)
        except ConnectionError:
            pass
        finally:
            await lines.aclose()
        return response

    async def _log(self, request: web.Request, target: Target) -> web.StreamResponse:
        pod = self._store.stored(target.resource, target.name, target.namespace or "")
        log = log_of(self.kubelets, pod, request.query)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for text in log_text(log, request.query):
                await response.write(text)
        return response

    # -- writing

    async def _create(self, request: web.Request, target: Target) -> web.Response:
        if target.subresource:
            return await self._create_subresource(request, target)
        body = await self._body(request, target)
        decoded = self._store.decode(target.resource, body)
        headers = _unknown_fields(target.resource, decoded.unknown, request)
        created = self._store.create_decoded(
            target.resource, decoded, target.namespace or "", dry_run=_is_dry_run(request)
        )
        return _json(created, 201, headers)

    async def _create_subresource(self, request: web.Request, target: Target) -> web.Response:
        body = await self._body(request, target)
        name, namespace = target.name, target.namespace or ""
        if target.subresource == "binding":
            self._store.bind(name, body.get("target", {}).get("name", ""), namespace)
        elif target.subresource == "eviction":
            options = _options(body.get("deleteOptions") or {}, request.query)
            self._store.delete("pods", name, namespace, **options)
        else:
            self._store.stored(target.resource, name, namespace)
            token = self._access.token(self._access.service_account(namespace, name))
            expiry = timestamp(self._store.clock() + 3600)
            return _json({**body, "status": {"token": token, "expirationTimestamp": expiry}}, 201)
        return _json({**_SUCCESS, "code": 201}, 201)

    async def _update(self, request: web.Request, target: Target) -> web.Response:
        body = await self._body(request, target)
        row = target.resource
        decoded = self._store.decode(row, body)
        headers = _unknown_fields(row, decoded.unknown, request)
        if decoded.obj["metadata"].get("namespace", target.namespace) != target.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        with self._store.history.lock:
            old = self._store.stored(row, target.name, target.namespace or "")
            new = self._store.change(
                row, old, decoded.obj, subresource=target.subresource, dry_run=_is_dry_run(request)
            )
        return _json(new, 200, headers)

    async def _patch(self, request: web.Request, target: Target) -> web.Response:
        row, kind = target.resource, _PATCHES.get(request.content_type)
        if kind is None:
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        patch = parse_body(await request.read(), row.kind)
        with self._store.history.lock:
            old = self._store.stored(row, target.name, target.namespace or "")
            decoded = self._store.decode(row, copy_of(self._store.patched(row, old, patch, kind)))
            headers = _unknown_fields(row, decoded.unknown, request)
            new = self._store.change(
                row, old, decoded.obj, subresource=target.subresource, dry_run=_is_dry_run(request)
            )
        return _json(new, 200, headers)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        options = await self._delete_options(request)
        row, name, namespace = target.resource, target.name, target.namespace or ""
        gone = self._store.delete(row.name, name, namespace, **options)
        if row.returns_deleted or self._store.find(row.name, name, namespace) is not None:
            return _json(gone)
        details = {**row.details(name), "uid": gone["metadata"]["uid"]}
        return _json({**_SUCCESS, "details": details})

    async def _deletecollection(self, request: web.Request, target: Target) -> web.Response:
        options = await self._delete_options(request)
        row, query = target.resource, request.query
        found = await list_objects(self._store, row, target.namespace, query, self.too_large_wait_s)
        for item in found["items"]:
            metadata = item["metadata"]
            with contextlib.suppress(ApiError):  # somebody else was faster
                self._store.delete(row.name, metadata["name"], metadata.get("namespace", ""), **options)
        return _json(found)

    # -- bodies

    async def _body(self, request: web.Request, target: Target) -> Any:
        if request.content_type == "application/vnd.kubernetes.protobuf":
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        return parse_body(await request.read(), target.resource.kind)

    async def _delete_options(self, request: web.Request) -> dict[str, Any]:
        raw = await request.read()
        return _options(parse_body(raw, "DeleteOptions") if raw else {}, request.query)

    def _review(self, row: Resource, user: User, body: Any) -> Object:
        if row.name == "selfsubjectreviews":
            known = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
            return {"kind": row.kind, "apiVersion": row.api_version, "metadata": {}, "status": known}
        spec = body.get("spec", {})
        obj: Object = {"kind": row.kind, "apiVersion": row.api_version, "metadata": {}, "spec": spec}
        if row.name == "selfsubjectrulesreviews":
            rules = list(self._access.rules(user, spec.get("namespace", "")))
            if "system:masters" in user.groups:
                rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            status = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
            return obj | {"status": status}
        if row.name == "localsubjectaccessreviews":
            user = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
        asked = spec.get("resourceAttributes", {})
        action = Action(
            asked.get("verb", ""),
            asked.get("group", ""),
            asked.get("resource", ""),
            asked.get("namespace", ""),
            asked.get("name", ""),
            asked.get("subresource", ""),
        )
        return obj | {"status": {"allowed": self._access.allows(user, action)}}


def _is_allowed(target: Target, verb: str) -> bool:
    if target.subresource:
        verbs = {
            "status": ("get", "update", "patch"),
            "finalize": ("update",),
            "log": ("get",),
        }
        return verb in verbs.get(target.subresource, ("create",))
    row = target.resource
    if verb == "create" and (target.name or (row.is_namespaced and target.namespace is None)):
        return False
    return verb in row.verbs and not (verb in ("update", "patch") and not target.name)


def _shown(request: web.Request, row: Resource, answer: Object) -> Object:
    """Return an answer in the form that the client asks for."""
    return table_of(row, answer) if is_table_wanted(row, request.headers.get("Accept", "")) else answer


def _is_dry_run(request: web.Request) -> bool:
    return request.query.get("dryRun") == "All"


def _unknown_fields(row: Resource, unknown: Sequence[str], request: web.Request) -> dict[str, str]:
    """Refuse, warn or say nothing, as fieldValidation asks; return the answer's headers."""
    wanted = request.query.get("fieldValidation", "Warn")
    texts = [f'unknown field "{path}"' for path in unknown]
    if texts and wanted == "Strict":
        raise bad_request(
            f'{row.kind} in version "{row.version}" cannot be handled as a {row.kind}: strict decoding error: '
            + ", ".join(texts)
        )
    if not texts or wanted == "Ignore":
        return {}
    return {"Warning": ", ".join(f"299 - {json.dumps(text)}" for text in texts)}


def _options(body: Any, query: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise bad_request("json: cannot unmarshal into Go value of type v1.DeleteOptions")
    grace = query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
    preconditions = body.get("preconditions") or {}
    return {
        "grace_s": None if grace is None else int(grace),
        "uid": preconditions.get("uid"),
        "resource_version": preconditions.get("resourceVersion"),
        "propagation": query.get("propagationPolicy") or body.get("propagationPolicy") or "",
        "dry_run": query.get("dryRun") == "All" or body.get("dryRun") == ["All"],
    }


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    content = json.dumps(body, separators=(",", ":")).encode()
    return web.Response(body=content, status=status, content_type="application/json", headers=headers)


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()

"""The emulated API server, asked by the real client."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes.aio import client, config, watch
from kubernetes.aio.client.exceptions import ApiException

from tests.k8s.server.access import ADMIN, User
from tests.k8s.server.api_server import ApiServer
from tests.k8s.server.pod_logs import ListedLog

_WAIT_S = 30.0


def pod(name: str = "a", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "x"}]
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": containers, **spec}}


def ask(
    folder: Path,
    server: ApiServer,
    work: Callable[[client.CoreV1Api], Awaitable[None]],
    user: User = ADMIN,
) -> None:
    """Run a coroutine with a client that is configured as usual, by a kubeconfig."""

    async def run() -> None:
        configuration = client.Configuration()
        path = server.write_kubeconfig(folder / "kubeconfig", user)
        await config.load_kube_config(str(path), client_configuration=configuration)
        async with client.ApiClient(configuration) as api, asyncio.timeout(_WAIT_S):
            await work(client.CoreV1Api(api))

    asyncio.run(run())


async def with_session(
    server: ApiServer, work: Callable[[ApiServer, aiohttp.ClientSession], Awaitable[None]]
) -> None:
    """Run a coroutine with a plain session, for requests that the client would not send."""
    headers = {"Authorization": f"Bearer {server.admin_token}"}
    async with asyncio.timeout(_WAIT_S), aiohttp.ClientSession(server.url, headers=headers) as session:
        await work(server, session)


def message(error: ApiException) -> str:
    return str(json.loads(str(error.body))["message"])


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_a_pod_from_creation_to_deletion(tmp_path: Path, tls: bool) -> None:
    async def work(core: client.CoreV1Api) -> None:
        made = await core.create_namespaced_pod("default", pod(labels={"app": "j"}))
        assert made.spec.restart_policy == "Always"
        await core.patch_namespaced_pod("a", "default", {"metadata": {"annotations": {"k": "v"}}})
        found = await core.list_namespaced_pod("default", label_selector="app=j")
        assert [one.metadata.annotations for one in found.items] == [{"k": "v"}]
        await core.delete_namespaced_pod("a", "default", grace_period_seconds=0)
        with pytest.raises(ApiException) as caught:
            await core.read_namespaced_pod("a", "default")
        assert (caught.value.status, message(caught.value)) == (404, 'pods "a" not found')

    with ApiServer(tls=tls) as server:
        ask(tmp_path, server, work)


def test_a_watch_goes_on_from_a_list(tmp_path: Path) -> None:
    async def work(core: client.CoreV1Api) -> None:
        server.store.create("pods", pod("before"))
        start = (await core.list_namespaced_pod("default")).metadata.resource_version
        seen = []
        stream = watch.Watch()
        arguments = {"resource_version": start, "label_selector": "app=j", "timeout_seconds": 20}
        server.store.create("pods", pod("a", {"app": "j"}))
        server.store.create("pods", pod("b", {"app": "other"}))
        async for event in stream.stream(core.list_namespaced_pod, "default", **arguments):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 1:
                await core.patch_namespaced_pod("b", "default", {"metadata": {"labels": {"app": "j"}}})
            elif len(seen) == 2:
                await core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"app": None}}})
            elif len(seen) == 3:
                stream.stop()
                server.store.delete("pods", "b")
        assert seen == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]

    with ApiServer() as server:
        ask(tmp_path, server, work)


def test_a_watch_from_a_compacted_revision_is_expired(tmp_path: Path) -> None:
    async def work(core: client.CoreV1Api) -> None:
        start = server.store.revision
        server.store.create("pods", pod())
        server.store.history.compact()
        stream = watch.Watch()
        arguments = {"resource_version": str(start), "timeout_seconds": 20}
        with pytest.raises(ApiException) as caught:
            await anext(stream.stream(core.list_namespaced_pod, "default", **arguments))
        assert caught.value.status == 410
        assert str(caught.value.reason).startswith(f"Expired: too old resource version: {start} (")

    with ApiServer() as server:
        ask(tmp_path, server, work)


def test_pages_show_the_state_of_the_first(tmp_path: Path) -> None:
    async def work(core: client.CoreV1Api) -> None:
        for number in range(5):
            server.store.create("pods", pod(f"p{number}"))
        first = await core.list_pod_for_all_namespaces(limit=2)
        assert first.metadata.remaining_item_count == 3
        server.store.delete("pods", "p3")
        server.store.create("pods", pod("p9"))
        names = [one.metadata.name for one in first.items]
        page = first
        while page.metadata._continue:
            page = await core.list_pod_for_all_namespaces(limit=2, _continue=page.metadata._continue)
            names += [one.metadata.name for one in page.items]
        assert names == [f"p{number}" for number in range(5)]
        server.store.history.compact()
        with pytest.raises(ApiException) as caught:
            await core.list_pod_for_all_namespaces(limit=2, _continue=first.metadata._continue)
        assert caught.value.status == 410

    with ApiServer() as server:
        ask(tmp_path, server, work)


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    async def work(core: client.CoreV1Api) -> None:
        server.store.create("pods", pod("kept"))
        revision = server.store.revision
        made = await core.create_namespaced_pod("default", pod(), dry_run="All")
        assert made.metadata.uid
        await core.patch_namespaced_pod(
            "kept", "default", {"metadata": {"labels": {"k": "v"}}}, dry_run="All"
        )
        await core.delete_namespaced_pod("kept", "default", dry_run="All")
        assert server.store.revision == revision

    with ApiServer() as server:
        ask(tmp_path, server, work)


def test_unknown_fields_are_refused_only_if_that_is_asked_for() -> None:
    body = pod(containers=[{"name": "c", "image": "x", "imagePolicy": "y", "tty": True}])
    path = "/api/v1/namespaces/default/pods"

    async def work(server: ApiServer, session: aiohttp.ClientSession) -> None:
        async with session.post(f"{path}?fieldValidation=Strict", json=body) as response:
            refused = await response.json()
            assert response.status == 400
            assert refused["message"].endswith(
                'strict decoding error: unknown field "spec.containers[0].imagePolicy"'
            )
        async with session.post(path, json=body) as response:
            warning = '299 - "unknown field \\"spec.containers[0].imagePolicy\\""'
            assert response.headers["Warning"] == warning
        assert "imagePolicy" not in server.store.get("pods", "a")["spec"]["containers"][0]
        patch = {"spec": {"unheardOf": 1}}
        headers = {"Content-Type": "application/merge-patch+json"}
        async with session.patch(
            f"{path}/a?fieldValidation=Ignore", data=json.dumps(patch), headers=headers
        ) as response:
            assert (response.status, "Warning" in response.headers) == (200, False)

    with ApiServer() as server:
        asyncio.run(with_session(server, work))


def test_a_service_account_may_do_what_its_role_says(tmp_path: Path) -> None:
    async def work(core: client.CoreV1Api) -> None:
        with pytest.raises(ApiException) as caught:
            await core.create_namespaced_pod("jobs", pod())
        assert message(caught.value) == (
            'pods is forbidden: User "system:serviceaccount:jobs:default" cannot create resource "pods" in '
            'API group "" in the namespace "jobs"'
        )
        server.store.create(
            "roles",
            {
                "metadata": {"name": "r"},
                "rules": [
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get"]},
                    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["s"]},
                ],
            },
            "jobs",
        )
        server.store.create(
            "rolebindings",
            {
                "metadata": {"name": "b"},
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "jobs"}],
            },
            "jobs",
        )
        await core.create_namespaced_pod("jobs", pod())
        assert await allowed(core, "get", "secrets", "s")
        assert not await allowed(core, "get", "secrets", "other")
        assert not await allowed(core, "get", "pods", "a", "log")
        with pytest.raises(ApiException) as caught:
            await core.delete_namespaced_pod("a", "jobs")
        assert message(caught.value) == (
            'pods "a" is forbidden: User "system:serviceaccount:jobs:default" cannot delete resource "pods" in '
            'API group "" in the namespace "jobs"'
        )
        with pytest.raises(ApiException) as caught:
            await core.read_namespaced_pod("a", "default")
        assert caught.value.status == 403
        with pytest.raises(ApiException) as caught:
            await core.list_node()
        assert message(caught.value).endswith('resource "nodes" in API group "" at the cluster scope')

    async def allowed(
        core: client.CoreV1Api, verb: str, resource: str, name: str, subresource: str = ""
    ) -> bool:
        asked = client.V1ResourceAttributes(
            verb=verb, resource=resource, name=name, namespace="jobs", subresource=subresource
        )
        review = client.V1SelfSubjectAccessReview(
            spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked)
        )
        api = client.AuthorizationV1Api(core.api_client)
        return bool((await api.create_self_subject_access_review(review)).status.allowed)

    with ApiServer() as server:
        server.store.create("namespaces", {"metadata": {"name": "jobs"}})
        ask(tmp_path, server, work, server.access.service_account("jobs", "default"))


def test_the_log_of_a_pod(tmp_path: Path) -> None:
    log = ListedLog([(1.0, b"one\n"), (2.0, b"two\n"), (3.0, b"three\n")], is_ended=False)

    async def work(core: client.CoreV1Api) -> None:
        read = core.read_namespaced_pod_log
        assert await read("a", "default") == "one\ntwo\nthree\n"
        assert await read("a", "default", tail_lines=2) == "two\nthree\n"
        assert await read("a", "default", tail_lines=0) == ""
        assert await read("a", "default", limit_bytes=5) == "one\nt"
        assert await read("a", "default", since_seconds=3600) == ""
        assert (await read("a", "default", timestamps=True)).startswith(
            "1970-01-01T00:00:01.000000000Z one\n"
        )
        with pytest.raises(ApiException) as caught:
            await read("a", "default", container="d")
        assert message(caught.value) == "container d is not valid for pod a"
        assert await follow(core) == ["three\n", "four\n"]

    async def follow(core: client.CoreV1Api) -> list[str]:
        # Not by Watch: that of client 37 begins anew at a log's end.
        stream = core.read_namespaced_pod_log_without_preload_content
        response = await stream("a", "default", follow=True, tail_lines=1)
        seen = []
        async for line in response.content:
            seen.append(line.decode())
            if len(seen) == 1:
                log.written.append((4.0, b"four\n"))
                log.ended = True
        return seen

    with ApiServer() as server:
        server.kubelets["n"] = lambda namespace, name, container, previous: log
        server.store.create("pods", pod(nodeName="n"))
        ask(tmp_path, server, work)


def test_other_objects_of_a_job(tmp_path: Path) -> None:
    async def work(core: client.CoreV1Api) -> None:
        port = {"port": 2222}
        service = {"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [port]}}
        made = await core.create_namespaced_service("default", service)
        assert made.spec.cluster_ip.startswith("10.96.")
        labels = {"spec": {"selector": {"a": "c"}}}
        patched = await core.patch_namespaced_service("s", "default", labels)
        assert (patched.spec.cluster_ip, patched.spec.selector) == (made.spec.cluster_ip, {"a": "c"})
        await core.create_namespaced_secret("default", {"metadata": {"name": "k"}, "data": {"x": "eA=="}})
        deleted = await core.delete_namespaced_secret("k", "default")
        assert (deleted["status"], deleted["details"]["kind"]) == ("Success", "secrets")
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="a"))
        server.store.create("pods", pod())
        await core.create_namespaced_pod_eviction("a", "default", eviction)
        assert server.store.find("pods", "a") is None
        leases = client.CoordinationV1Api(core.api_client)
        spec = {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.000000Z"}
        await leases.create_namespaced_lease("default", {"metadata": {"name": "l"}, "spec": spec})
        lease = await leases.read_namespaced_lease("l", "default")
        lease.spec.holder_identity = "you"
        assert (await leases.replace_namespaced_lease("l", "default", lease)).spec.holder_identity == "you"

    with ApiServer() as server:
        ask(tmp_path, server, work)


def test_discovery_names_every_resource(tmp_path: Path) -> None:
    async def work(core: client.CoreV1Api) -> None:
        found = await core.get_api_resources()
        assert {"pods", "pods/status", "pods/log", "services"} <= {one.name for one in found.resources}
        groups = await client.ApisApi(core.api_client).get_api_versions()
        assert "rbac.authorization.k8s.io" in {one.name for one in groups.groups}
        assert (await client.VersionApi(core.api_client).get_code()).git_version == "v1.36.2"

    with ApiServer() as server:
        ask(tmp_path, server, work)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("PUT", "/api/v1/namespaces/default/pods", 405),
        ("POST", "/api/v1/pods", 405),
        ("POST", "/api/v1/namespaces/default/pods/a", 405),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/apis/scheduling.k8s.io/v2/priorityclasses", 404),
        ("GET", "/api/v1/namespaces/default/pods/a/exec", 404),
        ("GET", "/nothing", 404),
    ],
)
def test_paths_and_methods_that_are_not_served(method: str, path: str, code: int) -> None:
    async def work(server: ApiServer, session: aiohttp.ClientSession) -> None:
        async with session.request(method, path, data=b"{}") as response:
            assert response.status == code
            assert (await response.json())["kind"] == "Status"

    with ApiServer() as server:
        asyncio.run(with_session(server, work))

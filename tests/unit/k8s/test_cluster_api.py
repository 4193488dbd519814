"""The requests to an API server: their form, their repetitions, and what its refusals become."""

import asyncio
import gc
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from edlz.client.cli import main
from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    NotPermitted,
    Unauthorized,
    decoded,
    refusal,
)
from edlz.k8s.cluster.api_records import PodList
from edlz.k8s.cluster.rights import Subject, rights_line, with_own_path
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, EdlzError, PeerUnavailable

web = pytest.importorskip("aiohttp.web")
pytest.importorskip("kubernetes")

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "p",
        "uid": "u1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-27T21:11:08Z",
    },
    "spec": {"containers": [{"name": "c"}], "nodeName": "n"},
    "status": {
        "phase": "Running",
        "podIP": "127.1.0.2",
        "containerStatuses": [{"name": "c", "restartCount": 2}],
    },
}


def status_of(code: int, message: str, reason: str = "", **details: object) -> dict[str, object]:
    return {"kind": "Status", "code": code, "message": message, "reason": reason, "details": details}


class Answers:
    """A server that gives the answers it was told, one after the other, and keeps what it was asked."""

    def __init__(self, *answers: tuple[int, object] | tuple[int, object, dict[str, str]]) -> None:
        self.left, self.asked, self.tokens = list(answers), [], []

    async def answer(self, request: "web.Request") -> "web.StreamResponse":
        self.asked.append((request.method, str(request.rel_url), await request.text(), request.content_type))
        self.tokens.append(request.headers.get("Authorization", ""))
        code, body, *headers = self.left.pop(0)
        if isinstance(body, list):  # a stream; None in it: the connection breaks there
            stream = web.StreamResponse(status=code)
            await stream.prepare(request)
            for chunk in body:
                if chunk is None:
                    request.transport.close()
                    return stream
                await stream.write(chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode() + b"\n")
            return stream
        return web.json_response(body, status=code, headers=headers[0] if headers else {})


def kubeconfig(folder: Path, url: str, namespace: str = "research") -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "current-context": "lab",
                "contexts": [
                    {"name": "lab", "context": {"cluster": "c", "user": "me", "namespace": namespace}}
                ],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "me", "user": {"token": "secret"}}],
            }
        )
    )
    return path


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """Run something with a cluster that gives the answers; waiting takes no time."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def run(answers: Answers, use: Callable[[Cluster], Awaitable[object]], **settings: object) -> object:
        async def main() -> object:
            app = web.Application()
            app.router.add_route("*", "/{tail:.*}", answers.answer)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, url)))
            try:
                async with await Cluster.connect(JobConfig(**settings), patience_s=1e6) as cluster:
                    monkeypatch.setattr(cluster, "_sleep", no_sleep)
                    return await use(cluster)
            finally:
                await runner.cleanup()

        return asyncio.run(main())

    slept: list[float] = []

    async def no_sleep(seconds: float) -> None:
        slept.append(seconds)

    run.slept = slept  # type: ignore[attr-defined]
    return run


def test_the_namespace_is_the_contexts_unless_the_job_says_otherwise(asking) -> None:
    answers = Answers((200, POD), (200, POD))
    pod = asking(answers, lambda cluster: cluster.get_pod("p"))
    asking(answers, lambda cluster: cluster.get_pod("p"), namespace="other")
    assert [url for _, url, _, _ in answers.asked] == [
        "/api/v1/namespaces/research/pods/p",
        "/api/v1/namespaces/other/pods/p",
    ]
    assert (pod.uid, pod.status.pod_ip, pod.status.container_statuses[0].restart_count) == (
        "u1",
        "127.1.0.2",
        2,
    )


def test_what_may_pass_is_tried_again(asking) -> None:
    busy = (429, status_of(429, "busy"), {"Retry-After": "3"})
    late = (504, status_of(504, "too large", "Timeout", retryAfterSeconds=2))
    answers = Answers((500, status_of(500, "no")), busy, late, (503, {}), (200, POD))
    asking(answers, lambda cluster: cluster.get_pod("p"))
    assert len(answers.asked) == 5
    assert asking.slept[1] == 3
    assert asking.slept[2] == 2


def renew_token() -> None:
    """Let the kubeconfig give another token than before, as its login command does when one is over."""
    path = Path(os.environ["KUBECONFIG"])
    path.write_text(path.read_text().replace('"secret"', '"newer"'))


def test_a_token_that_is_over_is_got_anew(asking, monkeypatch: pytest.MonkeyPatch) -> None:
    over = (401, status_of(401, "Unauthorized", "Unauthorized"))
    answers = Answers((200, POD), over, (200, POD), over, (200, []))

    async def use(cluster: Cluster) -> None:
        await cluster.get_pod("p")
        renew_token()
        monkeypatch.setattr("edlz.k8s.cluster.connection.LOGIN_AGAIN_S", 0.0)
        await cluster.get_pod("p")
        assert [event async for event in cluster.watch_pods()] == []

    asking(answers, use)
    assert answers.tokens == ["Bearer secret"] * 2 + ["Bearer newer"] * 3


def test_a_token_that_was_just_got_is_not_got_again(asking) -> None:
    answers = Answers((401, status_of(401, "Unauthorized", "Unauthorized")))
    with pytest.raises(Unauthorized):
        asking(answers, lambda cluster: cluster.get_pod("p"))
    assert len(answers.asked) == 1


def test_patience_ends(asking) -> None:
    answers = Answers((500, status_of(500, "no")))
    with pytest.raises(PeerUnavailable, match="answers 500: no"):
        asking(answers, lambda cluster: cluster.create(POD, patience_s=0))
    assert len(answers.asked) == 1


def test_a_patch_is_a_merge_patch(asking) -> None:
    answers = Answers((200, POD))
    asking(answers, lambda cluster: cluster.patch_annotations("p", {"a": "1", "b": None}))
    method, _, body, content_type = answers.asked[0]
    assert (method, content_type) == ("PATCH", "application/merge-patch+json")
    assert json.loads(body) == {"metadata": {"annotations": {"a": "1", "b": None}}}


def test_a_delete_names_the_very_pod(asking) -> None:
    answers = Answers((200, POD), (404, status_of(404, "pods not found", "NotFound")))

    async def use(cluster: Cluster) -> object:
        return (await cluster.delete("Pod", "p", grace_s=5, uid="u1"), await cluster.delete("Pod", "p"))

    assert asking(answers, use) == (True, False)
    body = json.loads(answers.asked[0][2])
    assert (body["gracePeriodSeconds"], body["preconditions"]) == (5, {"uid": "u1"})


def test_typed_objects_are_taken(asking) -> None:
    from kubernetes.aio.client import V1ObjectMeta, V1Service, V1ServicePort, V1ServiceSpec

    service = V1Service(metadata=V1ObjectMeta(name="s"), spec=V1ServiceSpec(ports=[V1ServicePort(port=2222)]))
    answers = Answers((201, {"metadata": {"name": "s", "uid": "u2"}}))
    assert asking(answers, lambda cluster: cluster.create(service)).uid == "u2"
    method, url, body, _ = answers.asked[0]
    assert (method, url) == ("POST", "/api/v1/namespaces/research/services")
    assert json.loads(body)["spec"]["ports"] == [{"port": 2222}]


async def events(cluster: Cluster) -> list[tuple[str, str]]:
    return [
        (event.type, event.object.metadata.resource_version) async for event in cluster.watch_pods("a=b", "5")
    ]


def test_a_watch_gives_events_until_it_ends(asking) -> None:
    empty = {"spec": {"containers": None}, "status": {}}  # as Kubernetes sends it
    about = {"resourceVersion": "9", "creationTimestamp": None}
    mark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": about, **empty}}
    answers = Answers((200, [{"type": "ADDED", "object": POD}, mark]))
    assert asking(answers, events) == [("ADDED", "7"), ("BOOKMARK", "9")]
    assert "resourceVersion=5" in answers.asked[0][1]
    assert "labelSelector=a%3Db" in answers.asked[0][1]


def test_a_watch_from_a_forgotten_revision_says_so(asking) -> None:
    gone = {"type": "ERROR", "object": status_of(410, "too old resource version", "Expired")}
    for answers in (Answers((200, [gone])), Answers((410, status_of(410, "too old", "Expired")))):
        with pytest.raises(Expired):
            asking(answers, events)


@pytest.mark.parametrize("rest", [b"", b'{"type":"ADDED","obj'])
def test_a_watch_that_breaks_off_says_so(asking, rest: bytes) -> None:
    answers = Answers((200, [{"type": "ADDED", "object": POD}, rest, None]))
    with pytest.raises(PeerUnavailable):
        asking(answers, events)


def test_log_lines_come_whole(asking) -> None:
    async def use(cluster: Cluster) -> object:
        return [line async for line in cluster.pod_log("p", tail_lines=3)]

    answers = Answers((200, [b"one\ntw", b"o\r\nthree"]))
    assert asking(answers, use) == ["one", "two", "three"]
    assert answers.asked[0][1].endswith("/pods/p/log?tailLines=3")


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:9")))

    async def main() -> None:
        async with await Cluster.connect(JobConfig(), patience_s=0) as cluster:
            await cluster.list_pods()

    with pytest.raises(
        PeerUnavailable, match=r"http://127.0.0.1:9 .context \"lab\". cannot be reached"
    ) as caught:
        asyncio.run(main())
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("text", [None, "contexts: [", "a: 1", "current-context: x\ncontexts: []"])
def test_a_bad_kubeconfig_is_a_mistake_in_the_settings(tmp_path, monkeypatch, text) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)) as caught:
        asyncio.run(Cluster.connect(JobConfig()))
    assert caught.value.help


def refused(code: int, message: str, reason: str = "", **details: object) -> EdlzError:
    body = json.dumps(status_of(code, message, reason, **details)).encode()
    return refusal(code, body, "research", "https://lab")


def test_missing_rights_are_answered_with_the_line_that_gives_them() -> None:
    text = (
        'pods is forbidden: User "system:serviceaccount:research:default" cannot create resource "pods" '
        'in API group "" in the namespace "research"'
    )
    error = refused(403, text, "Forbidden", kind="pods")
    assert isinstance(error, NotPermitted)
    assert error.message == 'service account "default" may not create pods in "research"'
    assert error.help == "kubectl apply -n research -f k8s/manifests/edlz-rbac.yaml"
    assert error.exit_code == 5


@pytest.mark.parametrize(
    ("user", "who", "line"),
    [
        ("ann", 'user "ann"', "rolebinding edlz-ann -n research --clusterrole=edit --user=ann"),
        (
            "Ann B@lab.org",
            'user "Ann B@lab.org"',
            "rolebinding edlz-ann-b-lab-org -n research --clusterrole=edit --user='Ann B@lab.org'",
        ),
        (
            "system:serviceaccount:research:trainer",
            'service account "trainer"',
            "rolebinding edlz-trainer -n research --role=edlz-master --serviceaccount=research:trainer",
        ),
        (
            "system:serviceaccount:ci:default",
            'service account "default" of "ci"',
            "rolebinding edlz-default -n research --role=edlz-master --serviceaccount=ci:default",
        ),
    ],
)
def test_the_line_gives_rights_to_whoever_lacks_them(user: str, who: str, line: str) -> None:
    text = f'pods is forbidden: User "{user}" cannot create resource "pods" in API group ""'
    error = refused(403, text, "Forbidden", kind="pods")
    assert error.message == f'{who} may not create pods in "research"'
    assert error.help.endswith(line)
    assert ("edlz-rbac.yaml" in error.help) == ("system:" in user), "it makes the role, and binds one account"


def test_the_manifest_is_where_it_is_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = "kubectl apply -n research -f k8s/manifests/edlz-rbac.yaml"
    line = rights_line("research", Subject("default", "research"))
    path = Path(line.rpartition(" ")[2])
    assert path.is_absolute()
    assert path.is_file()
    assert with_own_path(f"as a pod says: {told}") == f"as a pod says: {line}"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")  # in a pod: of whose files nobody else knows
    assert rights_line("research", Subject("default", "research")) == told


def test_what_a_strict_namespace_refuses_is_answered_with_what_it_takes() -> None:
    recorded = Path(__file__).parents[2] / "k8s" / "kubernetes-1.36.2-room.jsonl"
    records = {record["name"]: record for record in map(json.loads, recorded.read_text().splitlines())}
    for name, help_ in (
        ("restricted: a host folder", "--volume=claim_name=…,mount_path=… in place of host_path"),
        ("restricted: a plain pod", "let --cluster_spec set that"),
    ):
        body = json.dumps(records[name]["body"]).encode()
        error = refusal(403, body, "strict", "https://lab")
        assert isinstance(error, Forbidden)
        assert not isinstance(error, NotPermitted)
        assert 'violates PodSecurity "restricted:latest"' in error.message
        assert help_ in error.help


def test_other_refusals() -> None:
    anonymous = refused(403, 'pods is forbidden: User "system:anonymous" cannot list resource "pods" in …')
    assert "nobody is logged in" in anonymous.message
    quota = refused(403, 'pods "w" is forbidden: exceeded quota: q, requested: cpu=1', "Forbidden")
    assert isinstance(quota, Forbidden)
    assert not isinstance(quota, NotPermitted)
    assert "quota" in quota.help
    assert isinstance(refused(401, "Unauthorized"), Unauthorized)
    missing = refused(404, 'namespaces "no" not found', "NotFound", name="no", kind="namespaces")
    assert isinstance(missing, NotFound)
    assert missing.help == "kubectl create namespace no"
    assert isinstance(refused(409, "exists", "AlreadyExists"), AlreadyExists)
    conflict = refused(409, "the UID in the precondition", "Conflict")
    assert isinstance(conflict, Conflict)
    assert not isinstance(conflict, AlreadyExists)
    causes = [{"field": "spec.containers", "message": "Required value"}, {"field": "b", "message": "c"}]
    invalid = refused(422, "long", "Invalid", name="nc", kind="Pod", causes=causes)
    assert isinstance(invalid, Invalid)
    assert invalid.message == 'Pod "nc" is invalid: spec.containers: Required value; b: c'
    assert "<html>" in refusal(502, b"<html>\nbad gateway", "n", "s").message


@pytest.mark.parametrize("answer", [b"<html>\nplease log in", b'{"items": 3}', b"\xff\xfe", b""])
def test_a_proxy_that_answers_in_place_of_the_server(answer: bytes) -> None:
    with pytest.raises(PeerUnavailable, match="http://s gives no answer of a Kubernetes API server, but"):
        decoded(answer, PodList, "http://s")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo no ticket >&2; exit 3", "process returned 3. no ticket"),
        ("echo nonsense", "failed to decode process output"),
        ("echo $$ > pid; exec sleep 100", "it gave no credentials within 0s"),
    ],
)
def test_a_login_command_that_fails(
    command: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", command]}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": {**login, "interactiveMode": "Never"}}}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.chdir(tmp_path)
    if "sleep" in command:
        monkeypatch.setattr("edlz.k8s.cluster.connection.LOGIN_S", 0.2)
    assert main(["status", "mnist", "-n", "research"]) == 5
    error, advice = capfd.readouterr().err.splitlines()
    assert error.startswith(f'error: the command by which context "lab" logs in failed: {said}')
    assert advice == "help: log in again: kubectl auth whoami"
    gc.collect()
    if "sleep" in command:
        pid = int((tmp_path / "pid").read_text())
        assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]

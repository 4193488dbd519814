"""The store: what creation, change and deletion do, and that histories lose nothing."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.server.objects.errors import ApiError
from tests.k8s.server.objects.history import Change, History
from tests.k8s.server.objects.store import Store


def pod(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def refusal(code: int, work: Callable[[], object]) -> str:
    """Return the message of the refusal that must come."""
    with pytest.raises(ApiError) as caught:
        work()
    assert caught.value.code == code, caught.value.message
    return caught.value.message


# -- creation


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("host:5000/x", "Always"),
        ("host:5000/x:1", "IfNotPresent"),
        ("x@sha256:00", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_from_the_tag(image: str, policy: str) -> None:
    made = Store().create("pods", pod(containers=[{"name": "c", "image": image}]))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
def test_the_quality_of_service_follows_from_the_resources(resources: dict[str, Any], qos: str) -> None:
    made = Store().create("pods", pod(containers=[{"name": "c", "image": "x", "resources": resources}]))
    assert made["status"]["qosClass"] == qos


def test_a_pod_takes_its_priority_from_its_class() -> None:
    store = Store()
    store.create("priorityclasses", {"metadata": {"name": "hi"}, "value": 7, "preemptionPolicy": "Never"})
    made = store.create("pods", pod(priorityClassName="hi"))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
    assert "must not be provided" in refusal(403, lambda: store.create("pods", pod("b", priority=3)))
    store.create("priorityclasses", {"metadata": {"name": "usual"}, "value": 2, "globalDefault": True})
    assert store.create("pods", pod("c"))["spec"]["priority"] == 2


def test_a_pod_needs_its_service_account() -> None:
    message = refusal(403, lambda: Store().create("pods", pod(serviceAccountName="ghost")))
    assert message == (
        'pods "a" is forbidden: error looking up service account default/ghost: '
        'serviceaccount "ghost" not found'
    )


def test_a_secret_folds_its_plain_text_in() -> None:
    made = Store().create("secrets", {"metadata": {"name": "s"}, "stringData": {"k": "text"}})
    assert (made["data"], made["type"]) == ({"k": "dGV4dA=="}, "Opaque")
    assert "stringData" not in made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy: Unsupported value"),
        ({"containers": [{"name": "C", "image": "x"}]}, "spec.containers[0].name: Invalid value"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value"),
        (
            {"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]},
            'spec.containers[1].name: Duplicate value: "c"',
        ),
        (
            {"containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            "spec.containers[0].volumeMounts[0].name: Not found",
        ),
        ({"volumes": [{"name": "v", "secret": {}}]}, "spec.volumes[0].secret.secretName: Required value"),
        (
            {
                "containers": [
                    {
                        "name": "c",
                        "image": "x",
                        "resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "2048Mi"}},
                    }
                ]
            },
            "must be less than or equal to memory limit of 1Gi",
        ),
        (
            {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"gpu": "1"}}}]},
            "must be a standard resource type or fully qualified",
        ),
    ],
)
def test_a_pod_that_is_wrong_is_refused(change: dict[str, Any], message: str) -> None:
    assert message in refusal(422, lambda: Store().create("pods", pod(**change)))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "metadata.name: Required value: name or generateName is required"),
        ({"name": "A_b"}, "a lowercase RFC 1123 subdomain"),
        ({"name": "a", "labels": {"k": "no spaces"}}, "metadata.labels: Invalid value"),
        ({"name": "a", "labels": {"-k": "v"}}, "metadata.labels: Invalid value"),
        ({"name": "a", "labels": {"k": "v" * 64}}, "must be no more than 63"),
        ({"name": "a", "annotations": {"k": "v" * 300_000}}, "metadata.annotations: Too long"),
    ],
)
def test_metadata_that_is_wrong_is_refused(metadata: dict[str, Any], message: str) -> None:
    assert message in refusal(422, lambda: Store().create("pods", {**pod(), "metadata": metadata}))


@pytest.mark.parametrize(
    ("container", "message"),
    [
        (
            {"name": "c", "image": 1},
            "json: cannot unmarshal number into Go struct field Container.spec.containers.image of type string",
        ),
        (
            {"name": "c", "image": "x", "env": [{"name": "N", "value": True}]},
            "json: cannot unmarshal bool into Go struct field EnvVar.spec.containers.env.value of type string",
        ),
        (
            {"name": "c", "image": "x", "resources": {"limits": {"cpu": "a lot"}}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            {"name": "c", "image": "x", "resources": {"limits": {"memory": "1KiM"}}},
            "unable to parse quantity's suffix",
        ),
    ],
)
def test_a_body_of_wrong_types_is_refused(container: dict[str, Any], message: str) -> None:
    found = refusal(400, lambda: Store().create("pods", pod(containers=[container])))
    assert found == f'Pod in version "v1" cannot be handled as a Pod: {message}'


# -- changes


def test_a_change_of_the_image_makes_a_new_generation() -> None:
    store = Store()
    store.create("pods", pod())
    assert store.patch("pods", "a", {"metadata": {"labels": {"k": "v"}}})["metadata"]["generation"] == 1
    containers = [{"name": "c", "image": "y"}]
    new = store.patch("pods", "a", {"spec": {"containers": containers}}, kind="strategic")
    assert (new["metadata"]["generation"], new["spec"]["containers"][0]["image"]) == (2, "y")
    assert new["spec"]["containers"][0]["imagePullPolicy"] == "Always"


def test_an_update_may_not_name_another_object_or_an_old_revision() -> None:
    store = Store()
    old = store.create("pods", pod())
    store.patch("pods", "a", {"metadata": {"labels": {"k": "v"}}})
    assert "the object has been modified" in refusal(409, lambda: store.update("pods", old))
    old["metadata"].pop("resourceVersion")
    assert "labels" not in store.update("pods", old)["metadata"]
    old["metadata"]["uid"] = "other"
    assert "UID in the precondition" in refusal(409, lambda: store.update("pods", old))


def test_an_update_cannot_change_what_the_server_has_set() -> None:
    store = Store()
    old = store.create("pods", pod())["metadata"]
    sent = {
        "name": "a",
        "creationTimestamp": "2000-01-01T00:00:00Z",
        "deletionTimestamp": "2000-01-01T00:00:00Z",
    }
    spec = store.get("pods", "a")["spec"]
    new = store.update("pods", {"metadata": {**sent, "labels": {"k": "v"}, "generation": 9}, "spec": spec})
    new["metadata"].pop("labels")
    assert new["metadata"] == {**old, "resourceVersion": str(store.revision)}


def test_a_status_changes_only_by_its_subresource() -> None:
    store = Store()
    store.create("pods", pod())
    status = {"status": {"phase": "Running", "podIP": "127.1.2.3"}, "spec": {"nodeName": "n"}}
    new = store.patch("pods", "a", status, subresource="status")
    assert new["status"] == {
        "phase": "Running",
        "podIP": "127.1.2.3",
        "podIPs": [{"ip": "127.1.2.3"}],
        "qosClass": "BestEffort",
    }
    assert "nodeName" not in new["spec"]
    revision = store.revision
    store.patch("pods", "a", {"status": {"phase": "Failed"}})
    assert store.revision == revision


def test_what_is_read_is_a_copy() -> None:
    store = Store()
    store.create("pods", pod())["spec"]["containers"].clear()
    store.get("pods", "a")["spec"]["containers"].clear()
    store.list("pods")[0]["spec"]["containers"].clear()
    assert len(store.get("pods", "a")["spec"]["containers"]) == 1


# -- deletion


def test_an_unbound_and_an_ended_pod_go_at_once() -> None:
    store = Store()
    store.create("pods", pod())
    store.delete("pods", "a")
    assert store.find("pods", "a") is None
    store.create("pods", pod(nodeName="n"))
    store.patch("pods", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    store.delete("pods", "a")
    assert store.find("pods", "a") is None


def test_a_bound_pod_waits_for_its_kubelet() -> None:
    store = Store(clock=lambda: 0.0)
    uid = store.create("pods", pod(nodeName="n", terminationGracePeriodSeconds=7))["metadata"]["uid"]
    metadata = store.delete("pods", "a")["metadata"]
    assert metadata["deletionTimestamp"] == "1970-01-01T00:00:07Z"
    assert metadata["deletionGracePeriodSeconds"] == 7
    refusal(409, lambda: store.delete("pods", "a", grace_s=0, uid="other"))
    refusal(409, lambda: store.delete("pods", "a", grace_s=0, resource_version="1"))
    store.delete("pods", "a", grace_s=0, uid=uid)
    assert store.find("pods", "a") is None


def test_a_finalizer_holds_an_object_of_any_kind() -> None:
    store = Store()
    store.create("secrets", {"metadata": {"name": "s", "finalizers": ["x.io/f"]}})
    assert "deletionTimestamp" in store.delete("secrets", "s")["metadata"]
    store.patch("secrets", "s", {"metadata": {"finalizers": None}})
    assert store.find("secrets", "s") is None


def test_a_foreground_deletion_waits_for_the_collector() -> None:
    store = Store()
    store.create("secrets", {"metadata": {"name": "s"}})
    metadata = store.delete("secrets", "s", propagation="Foreground")["metadata"]
    assert metadata["finalizers"] == ["foregroundDeletion"]
    store.patch("secrets", "s", [{"op": "remove", "path": "/metadata/finalizers"}], kind="json")
    assert store.find("secrets", "s") is None


def test_a_namespace_goes_when_it_is_finalized() -> None:
    store = Store()
    store.create("namespaces", {"metadata": {"name": "n"}})
    assert store.delete("namespaces", "n")["status"] == {"phase": "Terminating"}
    assert "it is being terminated" in refusal(403, lambda: store.create("pods", pod(), "n"))
    namespace = store.get("namespaces", "n")
    store.update("namespaces", namespace | {"spec": {}})
    assert store.find("namespaces", "n") is not None
    store.update("namespaces", namespace | {"spec": {}}, subresource="finalize")
    assert store.find("namespaces", "n") is None


# -- history

_operations = st.lists(
    st.tuples(
        st.sampled_from(("create", "patch", "delete", "bind")), st.integers(0, 3), st.sampled_from("xyz")
    ),
    max_size=30,
)


def _act(store: Store, operation: str, name: str, label: str) -> None:
    try:
        if operation == "create":
            store.create("pods", {**pod(name), "metadata": {"name": name, "labels": {"k": label}}})
        elif operation == "patch":
            store.patch("pods", name, {"metadata": {"labels": {"k": label}}})
        elif operation == "bind":
            store.bind(name, "n")
        else:
            store.delete("pods", name, grace_s=3 if label == "x" else 0)
    except ApiError as error:
        if error.code not in (404, 409):
            raise


@given(_operations)
def test_each_revision_can_be_seen_again_and_played_on(operations: list[tuple[str, int, str]]) -> None:
    store = Store()
    seen = {store.revision: store.list("pods")}
    for operation, number, label in operations:
        _act(store, operation, f"p{number}", label)
        seen[store.revision] = store.list("pods")
    last = store.list("pods")
    for revision, objects in seen.items():
        then = store.history.at("pods", revision)
        assert [then[key] for key in sorted(then)] == objects
        played = dict(then)
        for change in store.history.since("pods", revision):
            _play(played, change)
        assert [played[key] for key in sorted(played)] == last


def _play(objects: dict[Any, Any], change: Change) -> None:
    assert (change.kind == "ADDED") == (change.key not in objects)
    if change.kind == "DELETED":
        del objects[change.key]
    else:
        objects[change.key] = change.after
    assert int(change.after["metadata"]["resourceVersion"]) == change.revision


def test_stored_versions_are_never_changed() -> None:
    store = Store()
    versions: list[tuple[Any, Any]] = []
    store.subscribe(lambda change: versions.append((change.after, copy.deepcopy(change.after))))
    for operation, name, label in [
        ("create", "a", "x"),
        ("bind", "a", "x"),
        ("patch", "a", "y"),
        ("delete", "a", "x"),
        ("delete", "a", "y"),
    ]:
        _act(store, operation, name, label)
    assert len(versions) == 6
    assert all(stored == kept for stored, kept in versions)


def test_a_listener_ends() -> None:
    history, seen = History(), []
    end = history.subscribe(lambda change: seen.append(change.revision))
    history.put("pods", ("n", "a"), {"metadata": {}})
    end()
    history.put("pods", ("n", "a"), {"metadata": {}})
    assert seen == [2]

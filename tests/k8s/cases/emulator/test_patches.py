"""Patches and selectors, as the standards and the API's own rules have them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.server.objects.errors import ApiError
from tests.k8s.server.objects.kinds import RESOURCES
from tests.k8s.server.objects.patches import json_patch, merge_patch, strategic_patch
from tests.k8s.server.objects.schema import schema_of
from tests.k8s.server.objects.selectors import field_selector, label_selector

PODS = RESOURCES["pods"]
_json = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # some of the table in RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


@given(_json, _json)
def test_a_merge_patch_may_be_sent_twice(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


def _containers(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": "x", "env": []} for name in names]}}


def test_a_strategic_patch_merges_containers_by_name() -> None:
    patch = {
        "spec": {
            "containers": [
                {"name": "b", "image": "y", "env": [{"name": "K", "value": "v"}]},
                {"name": "c", "image": "z"},
            ]
        }
    }
    merged = strategic_patch(_containers("a", "b"), patch, schema_of(PODS))
    images = {c["name"]: (c["image"], c.get("env")) for c in merged["spec"]["containers"]}
    assert images == {"a": ("x", []), "b": ("y", [{"name": "K", "value": "v"}]), "c": ("z", None)}


def test_a_strategic_patch_may_delete_and_replace() -> None:
    patch: dict[str, Any] = {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}
    merged = strategic_patch(_containers("a", "b"), patch, schema_of(PODS))
    assert [c["name"] for c in merged["spec"]["containers"]] == ["b"]
    patch = {"metadata": {"labels": {"$patch": "replace", "k": "v"}}}
    target = {"metadata": {"labels": {"old": "1"}, "finalizers": ["x.io/a", "x.io/b"]}}
    merged = strategic_patch(target, patch, schema_of(PODS))
    assert merged["metadata"]["labels"] == {"k": "v"}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}}
    assert strategic_patch(target, patch, schema_of(PODS))["metadata"]["finalizers"] == ["x.io/b"]


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/l/1", "value": 9}, {"l": [1, 9, 2], "o": {"a/b": 1}}),
        ({"op": "add", "path": "/l/-", "value": 9}, {"l": [1, 2, 9], "o": {"a/b": 1}}),
        ({"op": "remove", "path": "/l/0"}, {"l": [2], "o": {"a/b": 1}}),
        ({"op": "replace", "path": "/o/a~1b", "value": 2}, {"l": [1, 2], "o": {"a/b": 2}}),
        ({"op": "move", "from": "/l/0", "path": "/o/c"}, {"l": [2], "o": {"a/b": 1, "c": 1}}),
        ({"op": "copy", "from": "/l", "path": "/m"}, {"l": [1, 2], "m": [1, 2], "o": {"a/b": 1}}),
        ({"op": "test", "path": "/l/1", "value": 2}, {"l": [1, 2], "o": {"a/b": 1}}),
    ],
)
def test_json_patches(operation: dict[str, Any], result: Any) -> None:
    assert json_patch({"l": [1, 2], "o": {"a/b": 1}}, [operation]) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/l/1", "value": 3},
        {"op": "remove", "path": "/x"},
        {"op": "replace", "path": "/x", "value": 1},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "wish", "path": "/l"},
        {"op": "add", "path": "/l/1"},
    ],
)
def test_json_patches_that_do_not_apply(operation: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        json_patch({"l": [1, 2]}, [operation])
    assert caught.value.code == 422


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", "abc"),
        ("app=j", "a"),
        ("app==j", "a"),
        ("app!=j", "bc"),
        ("app", "ab"),
        ("!app", "c"),
        ("app in (j, k)", "ab"),
        ("app notin (j)", "bc"),
        ("app in (j,k),i!=1", "b"),
        ("app=", ""),
    ],
)
def test_label_selectors(text: str, selected: str) -> None:
    labels = {"a": {"app": "j", "i": "1"}, "b": {"app": "k"}, "c": {"i": "2"}}
    select = label_selector(text)
    assert "".join(name for name, of in labels.items() if select(of)) == selected


@pytest.mark.parametrize("text", ["app inn x", "app in x", "app in (x", "a b"])
def test_label_selectors_that_are_none(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        label_selector(text)
    assert caught.value.code == 400


def test_field_selectors_know_the_fields_of_their_resource() -> None:
    running = {"metadata": {"name": "a"}, "status": {"phase": "Running"}, "spec": {}}
    assert field_selector(PODS, "status.phase=Running,metadata.name!=b,spec.nodeName=")(running)
    assert not field_selector(PODS, "status.phase!=Running")(running)
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "a"}}
    assert field_selector(RESOURCES["events"], "involvedObject.name=a,involvedObject.kind=Pod")(event)
    with pytest.raises(ApiError, match=r"field label not supported: status\.phase"):
        field_selector(RESOURCES["events"], "status.phase=x")
    with pytest.raises(ApiError, match="is not a known field selector: only"):
        field_selector(RESOURCES["configmaps"], "data=x")

"""Manifests that ship with edlz, and YAML that any reader understands alike."""

from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edlz.k8s.cluster.manifest import to_yaml
from edlz.k8s.demo import DEMOS, MANIFESTS, demo_manifest
from edlz.k8s.flags.object_check import object_problems
from tests.unit.k8s.pod_objects import VERSIONS, all_objects


@pytest.mark.parametrize("file", sorted(DEMOS))
def test_demos_are_current(file: str) -> None:
    """`python -m edlz.k8s.demo` writes them anew."""
    assert (MANIFESTS / file).read_text(encoding="utf-8") == demo_manifest(file)


@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("*.yaml")), ids=lambda path: str(path.name))
def test_manifests_pass_the_schemas_of_all_versions(path: Any) -> None:
    objects = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    assert objects
    for plain in objects:
        assert object_problems(plain) == []
        for version in VERSIONS:
            kubernetes_validate.validate(plain, version, strict=True)


def test_the_rights_are_no_more_than_a_job_needs() -> None:
    role, binding = yaml.safe_load_all((MANIFESTS / "edlz-rbac.yaml").read_text(encoding="utf-8"))
    rights = {rule["resources"][0]: set(rule["verbs"]) for rule in role["rules"]}
    assert rights == {
        "pods": {"create", "delete", "get", "list", "watch", "patch"},
        "pods/log": {"get"},
        "pods/finalizers": {"update"},
        "services": {"create", "delete", "get"},
        "secrets": {"create", "delete"},
        "configmaps": {"create", "delete"},
    }
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "default"}]


def test_priority_classes_have_the_values_of_the_tutorial() -> None:
    classes = yaml.safe_load_all((MANIFESTS / "priority-classes.yaml").read_text(encoding="utf-8"))
    assert {plain["metadata"]["name"]: plain["value"] for plain in classes} == {
        "high-priority": 1000000,
        "low-priority": 1000,
    }


def test_yaml_is_read_as_it_was_written() -> None:
    objects = [plain for _, plain in all_objects()]
    assert list(yaml.safe_load_all(to_yaml(objects))) == objects


@pytest.mark.parametrize(
    "text", ["1e3", "y", "no", "012", "0o7", "1_000", "~", "", "null", ".5", "1:30", "0x1F", "=", "-"]
)
def test_a_text_is_no_number_for_any_reader(text: str) -> None:
    assert f'value: "{text}"\n' in to_yaml([{"value": text}])


@given(
    st.recursive(
        st.text() | st.integers() | st.booleans(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_text_survives_yaml(item: Any) -> None:
    assert yaml.safe_load(to_yaml([{"item": item}])) == {"item": item}

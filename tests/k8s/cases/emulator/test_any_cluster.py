"""What holds on every cluster: run on the emulated one, and on a real one with K8S_TESTS=True."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.any_cluster import AnyCluster
from tests.k8s.cluster import TestCluster

Object = dict[str, Any]


def make_pod(cluster: AnyCluster, name: str, code: str, **spec: Any) -> Object:
    container = {"name": "c", "image": cluster.image, "command": ["python", "-c", code]}
    return {
        "metadata": {"name": name, "labels": {"l": name}},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def test_pods_run_are_found_and_are_deleted(cluster: AnyCluster) -> None:
    cluster.create("pods", make_pod(cluster, "a", "print('hello'); raise SystemExit(3)"))
    cluster.create("pods", make_pod(cluster, "b", "import time; time.sleep(600)"))
    pod = cluster.wait_for_phase("a", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert cluster.log("a") == "hello\n"
    assert "Scheduled" in [one["reason"] for one in cluster.events("a")]
    assert [one["metadata"]["name"] for one in cluster.list("pods", "l in (b)")] == ["b"]
    cluster.wait_for_phase("b", "Running")
    cluster.delete("pods", "b", grace_s=1)
    cluster.wait_until_gone("b")
    assert "a: Failed" in cluster.describe()


def test_an_owner_takes_its_dependents_along(cluster: AnyCluster) -> None:
    owner = cluster.create("pods", make_pod(cluster, "owner", "pass"))
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner["metadata"]["uid"]}
    cluster.create("secrets", {"metadata": {"name": "s", "ownerReferences": [reference]}})
    cluster.delete("pods", "owner", grace_s=0)
    cluster.wait_for(lambda: cluster.find("secrets", "s") is None, "the secret is gone")


def test_a_pod_reaches_the_api_from_inside(cluster: AnyCluster) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    cluster.create("roles", {"metadata": {"name": "reader"}, "rules": rules})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": cluster.namespace}],
    }
    cluster.create("rolebindings", binding)
    code = (
        "from kubernetes import client, config; config.load_config(); "
        f"print([one.metadata.name for one in client.CoreV1Api().list_namespaced_pod({cluster.namespace!r}).items])"
    )
    cluster.create("pods", make_pod(cluster, "a", code))
    cluster.wait_for_phase("a", "Succeeded")
    assert cluster.log("a").splitlines()[-1] == "['a']"


def test_power_over_nodes_is_for_the_emulated_only(cluster: AnyCluster) -> None:
    cluster.emulated().add_node("third")
    assert cluster.find("nodes", "third") is not None


@pytest.mark.slow
def test_these_tests_pass_on_a_cluster_that_is_given(emulated_cluster: TestCluster) -> None:
    """The emulated cluster plays the real one, and nothing of the tests is left in it."""
    emulated_cluster.add_node("a")
    flags = ["-q", "-p", "no:cacheprovider", "-k", "not are_left_out and not that_is_given"]
    environment = {
        **os.environ,
        "K8S_TESTS": "True",
        "KUBECONFIG": str(emulated_cluster.kubeconfig),
        "EDLZ_TEST_IMAGE": emulated_cluster.image,
    }
    command = [sys.executable, "-m", "pytest", *flags, __file__]
    here = Path(__file__).resolve().parents[4]
    done = subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed, 1 skipped" in done.stdout
    left = {one["metadata"]["name"] for one in emulated_cluster.store.list("namespaces")}
    assert not any(name.startswith("edlz-test-") for name in left)
    assert emulated_cluster.store.list("pods") == []


def test_clusters_are_left_out_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.k8s.conftest import _wanted

    monkeypatch.setenv("K8S_TESTS", "False")
    with pytest.raises(pytest.skip.Exception):
        _wanted()

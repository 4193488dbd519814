"""The stand-in for kubectl prints what kubectl prints, where both are there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import edlz.k8s
from tests.k8s.cluster import TestCluster

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

ROOT = Path(__file__).parents[4]
MANIFESTS = Path(edlz.k8s.__path__[0]) / "manifests"
KUBECTLS = [pytest.param([sys.executable, "-m", "tests.k8s.kubectl"], id="stand-in")]
if (found := shutil.which("kubectl")) is not None:
    KUBECTLS.append(pytest.param([found], id="kubectl"))


@pytest.mark.parametrize("kubectl", KUBECTLS)
def test_the_verbs_of_the_tutorials(emulated_cluster: TestCluster, kubectl: list[str]) -> None:
    emulated_cluster.add_node("node-a")

    def call(*words: str, code: int = 0) -> str:
        environment = {**os.environ, "KUBECONFIG": str(emulated_cluster.kubeconfig)}
        ended = subprocess.run(
            [*kubectl, *words], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
        )
        assert ended.returncode == code, ended.stderr
        return re.sub(r"\b\d+s", "Ns", ended.stdout + ended.stderr)

    created = (
        "role.rbac.authorization.k8s.io/edlz-master created\n"
        "rolebinding.rbac.authorization.k8s.io/edlz-master created\n"
    )
    assert call("apply", "-f", str(MANIFESTS / "edlz-rbac.yaml")) == created
    assert call("apply", "-f", str(MANIFESTS / "edlz-rbac.yaml")) == created.replace("created", "unchanged")

    command = ["python", "-u", "-c", "import time; print('Evaluation'); time.sleep(600)"]
    container = {"name": "p", "image": emulated_cluster.image, "command": command}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    emulated_cluster.create("pods", {"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": spec})
    emulated_cluster.wait_for_phase("p", "Running")
    emulated_cluster.wait_for(lambda: emulated_cluster.log("p"), "a line in the log")
    table = "NAME   READY   STATUS    RESTARTS   AGE\np      1/1     Running   0          Ns\n"
    assert call("get", "pods", "-l", "app=x") == call("get", "pod", "p") == table
    everywhere = "NAMESPACE   NAME   READY   STATUS    RESTARTS   AGE\ndefault     p      1/1     Running   0"
    assert call("get", "all", "--all-namespaces").startswith(everywhere)
    assert call("get", "pods", "-l", "app=y") == "No resources found in default namespace.\n"
    assert call("logs", "p") == call("logs", "-l", "app=x") == "Evaluation\n"

    assert call("delete", "pod", "-l", "app=x") == 'pod "p" deleted\n'
    assert emulated_cluster.find("pods", "p") is None
    assert call("delete", "pod", "p", code=1) == 'Error from server (NotFound): pods "p" not found\n'

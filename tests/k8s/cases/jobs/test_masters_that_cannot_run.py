"""Masters that end before their job begins: why reaches whoever submitted it, and nothing restarts for ever."""

import json
from pathlib import Path

import pytest
import yaml

import edlz.k8s
from edlz.client.cli import main
from tests.k8s.cluster import TestCluster

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")
pytestmark = pytest.mark.slow

RIGHTS = Path(edlz.k8s.__path__[0]) / "manifests" / "edlz-rbac.yaml"
POD = "elasticdl-test-mnist-master"


@pytest.fixture
def ready(emulated_cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestCluster:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("edlz.client.images.daemon.look_up", lambda image, address: None)  # no daemon here
    monkeypatch.setattr("edlz.client.cluster.submission.WORD_S", 120.0)  # on a busy machine
    monkeypatch.setenv("KUBECONFIG", str(emulated_cluster.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.chdir(tmp_path)
    emulated_cluster.add_node("node-a")
    for obj in yaml.safe_load_all(RIGHTS.read_text()):
        emulated_cluster.create(f"{obj['kind'].lower()}s", obj)
    return emulated_cluster


def submit(cluster: TestCluster, *more: str) -> int:
    flags = [
        "--model_def=mnist.mnist_functional_api.custom_model",
        f"--image_name={cluster.image}",
        "--training_data=/data/train",
        "--num_workers=1",
        "--worker_resource_request=cpu=1,memory=1024Mi",
        "--job_name=test-mnist",
        *more,
    ]
    return main(["train", *flags])


def test_a_master_that_finds_no_cluster(ready: TestCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """It cannot write a word on its pod; the pod keeps the end of its log."""
    assert submit(ready, "--envs=KUBERNETES_SERVICE_HOST=,KUBECONFIG=/nowhere") == 2
    printed = capsys.readouterr()
    reason = "there is no kubeconfig at /nowhere"
    assert printed.err.splitlines() == [
        f'error: the master of job "test-mnist -n default" cannot run: {reason}',
        "help: set KUBECONFIG, or copy the cluster's there",
    ]
    assert printed.out.splitlines()[-1] == (
        "next: edlz logs test-mnist -n default --master; "
        "edlz stop --now test-mnist -n default, then submit it again"
    )
    assert main(["status", "test-mnist"]) == 0
    assert reason in capsys.readouterr().out
    assert main(["ls", "-o", "wide"]) == 0
    assert reason in capsys.readouterr().out
    assert main(["logs", "test-mnist", "--master"]) == 0
    assert f"error: {reason}" in capsys.readouterr().out
    assert main(["stop", "test-mnist"]) == 0  # there is nobody who could hear of it
    ready.wait_until_gone(POD)


def test_a_master_without_rights(ready: TestCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever submits may not always ask what the master's account may do."""
    ready.delete("rolebindings", "edlz-master")
    assert submit(ready, "--skip_preflight") == 5
    error, hint = capsys.readouterr().err.splitlines()
    reason = 'service account "default" may not list, watch, patch pods in "default"'
    assert error == f'error: the master of job "test-mnist -n default" cannot run: {reason}'
    assert hint == f"help: kubectl apply -n default -f {RIGHTS}", "where it is here, not in the pod"
    assert main(["status", "test-mnist"]) == 0
    shown = capsys.readouterr().out
    assert reason in shown
    assert "no answer yet" not in shown


def test_a_folder_that_cannot_be_written_to(
    ready: TestCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The master says so on its pod, which then ends: it is not started again for ever."""
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "jobs").write_text("a file in the way")
    flags = [f"--volume=host_path={volume},mount_path=/data", "--job_dir=/data/jobs/test-mnist"]
    assert submit(ready, *flags) == 2
    printed = capsys.readouterr().out
    assert "job_dir=/data/jobs/test-mnist cannot be written to by user" in printed
    assert f"{volume} (or chmod it) on the node" in printed
    status = ready.wait_for_phase(POD, "Failed")["status"]
    assert status["reason"] == "DeadlineExceeded"
    assert status["containerStatuses"][0]["restartCount"] == 0
    assert main(["wait", "test-mnist"]) == 2
    assert "cannot be written to by user" in capsys.readouterr().out
    assert main(["status", "test-mnist", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["job"]
    assert (found["state"], found["where"]) == ("Failed", "k8s/default")

"""A whole job from the command line to pods that are processes: submitted, watched, scaled, ended."""

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

import edlz.k8s
from edlz.client.cli import main
from edlz.k8s.cluster.names import STATUS, selector
from edlz.services.predictions.output import read_manifest
from tests.k8s.any_cluster import wait_for
from tests.k8s.cluster import TestCluster

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")
pytestmark = pytest.mark.slow

MANIFESTS = Path(edlz.k8s.__path__[0]) / "manifests"


@pytest.fixture
def ready(cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestCluster:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("edlz.client.images.daemon.look_up", lambda image, address: None)  # no daemon here
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.chdir(tmp_path)
    for obj in yaml.safe_load_all((MANIFESTS / "edlz-rbac.yaml").read_text()):
        cluster.create(f"{obj['kind'].lower()}s", obj)
    return cluster


def check_what_the_pod_shows(cluster: TestCluster, name: str) -> None:
    """Metrics and health are at the address of the master's pod, where its annotations send a scraper; the page is not."""
    pages: list[str] = []

    def is_told() -> bool:
        pod = cluster.find("pods", name) or {}
        said = pod.get("metadata", {}).get("annotations", {}).get(STATUS)
        pages.extend([page] if said and (page := json.loads(said).get("page")) else [])
        return bool(pages)

    wait_for(is_told, "the address of the page")
    port = pages[0].rpartition(":")[2]
    pod = cluster.find("pods", name)
    assert pod is not None
    marks = pod["metadata"]["annotations"]
    assert (marks["prometheus.io/scrape"], marks["prometheus.io/path"]) == ("true", "/metrics")
    assert marks["prometheus.io/port"] == "50002"
    if port != "50002":
        assert is_taken(50002), "a job of somebody else on this machine"
    address = f"http://{pod['status']['podIP']}:{port}"
    assert b"edlz_job_info{" in got(f"{address}/metrics")
    assert got(f"{address}/healthz") == b"ok\n"
    for path in ("/", "/api/status"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            got(address + path)


def is_taken(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


def got(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as answer:
        found: bytes = answer.read()
    return found


def test_a_job_runs_in_pods(
    ready: TestCluster, small_mnist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--model_def=mnist.mnist_functional_api.custom_model",
        f"--image_name={ready.image}",
        f"--volume=host_path={small_mnist},mount_path=/data",
        "--training_data=/data/train",
        "--validation_data=/data/test",
        "--minibatch_size=50",
        "--num_minibatches_per_task=2",
        "--num_epochs=2",
        "--num_workers=1",
        "--worker_resource_request=cpu=1,memory=1024Mi",
        "--ps_resource_request=cpu=0.5,memory=512Mi",
        "--job_name=test-mnist",
    ]
    code = main(["train", *flags])
    printed = capsys.readouterr()
    assert code == 0, printed.out + printed.err + ready.describe()
    assert "Submitted test-mnist." in printed.out
    check_what_the_pod_shows(ready, "elasticdl-test-mnist-master")
    code = main(["wait", "test-mnist", "--timeout=5m"])
    assert code == 0, capsys.readouterr().out + ready.describe()
    capsys.readouterr()
    assert main(["status", "test-mnist", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["job"]["state"], found["progress"]["ratio"]) == ("Succeeded", 1.0)
    assert found["progress"]["minibatches"] == 48
    assert main(["logs", "test-mnist", "--master", "--grep=Evaluation metrics"]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["rm", "test-mnist"]) == 0
    ready.wait_until_gone("elasticdl-test-mnist-master")
    for resource in ("pods", "services", "secrets"):
        left = f"no {resource} of the job"
        wait_for(lambda resource=resource: ready.list(resource, selector("test-mnist")) == [], left)


def test_a_checkpoint_is_evaluated_and_predicts_in_pods(
    ready: TestCluster, small_mnist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = tmp_path / "ckpt"
    checkpoints.mkdir()
    checkpoints.chmod(0o777)  # pods run as a user of their own
    pods = [
        f"--image_name={ready.image}",
        f"--volume=host_path={small_mnist},mount_path=/data;host_path={checkpoints},mount_path=/ckpt",
        "--num_workers=1",
        "--worker_resource_request=cpu=1,memory=1024Mi",
        "--ps_resource_request=cpu=0.5,memory=512Mi",
    ]
    flags = ["--model_def=mnist.mnist_functional_api.custom_model", "--minibatch_size=50", *pods]
    test = "--validation_data=/data/test"
    saving = ["--training_data=/data/train", "--checkpoint_steps=1000", "--checkpoint_dir=/ckpt", test]
    begin = ["--checkpoint_dir_for_init=/ckpt"]
    predicting = ["--prediction_data=/data/test", "--prediction_output=/ckpt/predictions", *begin]
    found = {}
    analyzing = ["/data/test", "--columns=label", "--statistics_output=/ckpt/statistics"]
    for command, name, more in (
        ("train", "trained", [*flags, *saving]),
        ("evaluate", "evaluated", [*flags, test, *begin]),
        ("predict", "predicted", [*flags, *predicting]),
        ("analyze", "analyzed", [*pods, *analyzing]),
    ):
        code = main([command, *more, f"--job_name={name}"])
        printed = capsys.readouterr()
        assert code == 0, printed.out + printed.err + ready.describe()
        code = main(["wait", name, "--timeout=5m"])
        assert code == 0, capsys.readouterr().out + ready.describe()
        capsys.readouterr()
        assert main(["status", name, "-o", "json"]) == 0
        found[name] = json.loads(capsys.readouterr().out)
        assert main(["rm", name]) == 0
        ready.wait_until_gone(f"elasticdl-{name}-master")
    assert found["evaluated"]["evaluations"] == found["trained"]["evaluations"][-1:]
    assert (found["evaluated"]["progress"]["ratio"], found["evaluated"]["progress"]["records"]) == (1.0, 200)
    assert (found["predicted"]["progress"]["ratio"], found["predicted"]["job"]["state"]) == (1.0, "Succeeded")
    manifest = read_manifest(checkpoints / "predictions")
    assert manifest is not None
    assert (manifest.records, manifest.job) == (200, "predicted")
    assert (found["analyzed"]["progress"]["records"], found["analyzed"]["job"]["state"]) == (200, "Succeeded")
    statistics = json.loads((checkpoints / "statistics" / "statistics.json").read_text())
    assert statistics["columns"]["label"]["count"] == 200

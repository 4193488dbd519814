"""`edlz train` with an image: checks, the master's pod and what is said, against an emulated API server."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import edlz.k8s
from edlz.client.cli import main
from edlz.client.cluster import job, submission
from edlz.client.cluster.index import list_places
from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.names import CONFIG
from edlz.services.protocol.job_status import EvaluationView, FailureView
from tests.k8s.any_cluster import wait_for
from tests.k8s.played import PlayedCluster, played_cluster, status
from tests.k8s.server import faults
from tests.k8s.server.access import User
from tests.k8s.server.pod_security import LABEL

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

MANIFESTS = Path(edlz.k8s.__path__[0]) / "manifests"
FLAGS = [
    "train",
    "--model_def=mnist.mnist_functional_api.custom_model",
    "--training_data=/data/mnist/train",
    "--validation_data=/data/mnist/test",
    "--image_name=edlz:mnist",
    "--num_workers=4",
    "--job_name=test-mnist",
]
ON_CLAIM = ["--volume=claim_name=mnist,mount_path=/data", "--job_dir=/data/jobs/test-mnist"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("edlz.client.images.local.look_up", lambda image, address: None)  # no daemon here
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    for name in ("FORCE_COLOR", "EDLZ_DEBUG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for module in (job, submission):
        monkeypatch.setattr(module, "POLL_S", 0.05)
    return tmp_path / "home"


@pytest.fixture
def cluster(home: Path) -> Iterator[PlayedCluster]:
    with played_cluster(home.parent / "kubeconfig", "research") as played:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}}
        played.store.create("namespaces", body)
        played.add_node()
        played.grant("research")
        played.first_word = status("Starting")
        yield played


def add_claim(cluster: PlayedCluster, name: str, phase: str = "Bound") -> None:
    amounts = {"requests": {"storage": "1Gi"}}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": amounts},
    }
    cluster.store.create("persistentvolumeclaims", body, "research")
    cluster.store.patch(
        "persistentvolumeclaims", name, {"status": {"phase": phase}}, "research", subresource="status"
    )


def pods(cluster: PlayedCluster) -> list[dict[str, Any]]:
    return cluster.store.list("pods", "research")


def test_a_job_is_submitted(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    add_claim(cluster, "mnist")
    assert main([*FLAGS, *ON_CLAIM]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == 'Preflight in context "emulated", namespace "research"'
    checks = {line[8:21].strip(): (line[2:7].strip(), line[21:].strip()) for line in printed[1:10]}
    assert checks["cluster"][1].startswith("reachable, v1.36")
    assert checks["cluster"][1].endswith("1 node amd64")
    assert checks["permissions"] == ("ok", "7 of 7 (pods and their logs)")
    assert checks["job name"] == ("ok", '"test-mnist" is free')
    assert checks["volume"] == ("ok", 'claim "mnist" is bound')
    assert checks["room"] == ("ok", "4 of 4 workers fit now")
    assert checks["model, data"][0] == "later"
    assert "Submitted test-mnist." in printed
    (running,) = [line for line in printed if "running (" in line]
    assert running.startswith("Master elasticdl-test-mnist-master: running (")
    assert printed[-2].split("    ") == [
        "  edlz status test-mnist -n research            ".rstrip(),
        *printed[-2].split("    ")[1:-1],
        "edlz logs -f test-mnist -n research",
    ]
    (pod,) = pods(cluster)
    assert pod["metadata"]["labels"]["elasticdl_job_name"] == "test-mnist"
    assert "--job_dir=/data/jobs/test-mnist" in pod["spec"]["containers"][0]["command"]
    (place,) = list_places()
    assert (place.name, place.namespace, place.context) == ("test-mnist", "research", "emulated")
    assert place.job_dir == "/data/jobs/test-mnist"
    assert main(["status", "test-mnist"]) == 0  # its name is enough
    assert "k8s/research" in capsys.readouterr().out


def test_all_that_is_wrong_is_said_and_nothing_is_created(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--volume=claim_name=mnits,mount_path=/data", "--worker_resource_request=cpu=32,memory=1Gi"]
    assert main([*FLAGS, *more, "--master_pod_priority=hihg"]) == 3
    printed = capsys.readouterr()
    assert printed.err == (
        'error: there is no volume claim "mnits" in "research"\n'
        "help: kubectl get pvc -n research\n"
        'error: there is no priority class "hihg"\n'
        "help: kubectl get priorityclasses; k8s/manifests has examples\n"
        "error: worker asks cpu=32, the largest node has 8\n"
        "help: lower --worker_resource_request\n"
    )
    assert pods(cluster) == []
    assert list_places() == []


def test_missing_rights(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], home: Path) -> None:
    cluster.server.write_kubeconfig(home.parent / "kubeconfig", User("ann"), "research")
    assert main(FLAGS) == 3
    printed = capsys.readouterr()
    assert printed.err.count("error: ") == 1, "once"
    assert (
        'error: user "ann" may not create, get, list, watch, patch, delete pods; get pods/log in'
        in printed.err
    )
    line = (
        "help: ask an administrator for: "
        "kubectl create rolebinding edlz-ann -n research --clusterrole=edit --user=ann"
    )
    assert line in printed.err.splitlines()
    assert "edlz-rbac.yaml" not in printed.err, (
        "the manifest gives the master's account rights, and nobody else"
    )
    assert main([*FLAGS, "--skip_preflight"]) == 5
    assert capsys.readouterr().err == f'error: user "ann" may not create pods in "research"\n{line}\n'
    assert pods(cluster) == []


def test_nobody_is_logged_in(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], home: Path) -> None:
    kubeconfig = yaml.safe_load((home.parent / "kubeconfig").read_text())
    kubeconfig["users"][0]["user"] = {}
    (home.parent / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    assert main(FLAGS) == 3
    assert capsys.readouterr().err.splitlines() == [
        'error: nobody is logged in: the cluster takes this for "system:anonymous", which may do nothing here',
        "help: log in, or give the context's user credentials: kubectl config view --minify",
    ]


def test_a_master_without_rights(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with played_cluster(home.parent / "kubeconfig") as cluster:
        cluster.add_node()
        assert main(FLAGS) == 3
        assert capsys.readouterr().err.splitlines() == [
            'error: service account "default" in "default" may not create, delete, get, list, watch, patch pods; '
            "create, get, delete services; create, delete secrets",
            f"help: kubectl apply -n default -f {MANIFESTS / 'edlz-rbac.yaml'}",
        ]
        cluster.grant()
        assert main([*FLAGS, "--dry-run=server"]) == 0


def test_no_such_namespace(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FLAGS, "--namespace=reserach", "--volume=claim_name=mnist,mount_path=/data"]) == 3
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        'error: there is no namespace "reserach"',
        "help: kubectl create namespace reserach",
    ]
    assert [line.split()[1] for line in printed.out.splitlines()[1:3]] == ["cluster", "namespace"]
    assert "may not" not in printed.out, "who may do what in a namespace that is not there tells nothing"


def test_a_namespace_that_takes_no_folders_of_nodes(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"metadata": {"labels": {LABEL: "restricted"}}}
    cluster.store.patch("namespaces", "research", labels, "")
    assert main([*FLAGS, "--volume=host_path=/srv,mount_path=/data"]) == 3
    printed = capsys.readouterr()
    (error, hint) = printed.err.splitlines()
    assert 'violates PodSecurity "restricted:latest": restricted volume types (volume ' in error
    assert hint == (
        'help: no folders of nodes in "research": --volume=claim_name=…,mount_path=… in place of host_path'
    )
    assert "  no     admission" in printed.out
    assert pods(cluster) == list_places() == []
    assert main(FLAGS) == 0, "all else of our pods is as the restricted profile wants it"


def test_a_cluster_that_is_not_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with played_cluster(home.parent / "kubeconfig") as cluster:
        cluster.server.down()
        assert main(FLAGS) == 3
        cluster.server.up()
    assert capsys.readouterr().err.count("error: ") == 1


def test_a_name_that_is_taken(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FLAGS) == 0
    capsys.readouterr()
    for more in ([], ["--skip_preflight"]):
        assert main([*FLAGS, *more]) == 3
        error, hint = capsys.readouterr().err.splitlines()
        assert error.startswith('error: job "test-mnist" exists')
        assert hint.endswith("or --job_name=test-mnist-2")
    cluster.say("test-mnist", status("Succeeded"), "research")
    assert main(FLAGS) == 3
    assert capsys.readouterr().err.splitlines() == [
        'error: job "test-mnist" exists: Succeeded',
        "help: edlz rm test-mnist -n research, or --job_name=test-mnist-2",
    ]


def test_a_master_that_does_not_come_up(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "MASTER_S", 0.3)
    cluster.first_word = None
    assert main(FLAGS) == 0
    printed = capsys.readouterr().out
    assert "Master elasticdl-test-mnist-master: still waits after 0s: a node" in printed
    assert "edlz stop test-mnist -n research" in printed


def test_a_job_that_fails_at_once(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    failure = FailureView(text='training_data "/data/mnist/train" does not exist', exit_code=2)
    cluster.first_word = status("Failed", failure=failure)
    assert main(FLAGS) == 2
    assert 'training_data "/data/mnist/train" does not exist' in capsys.readouterr().out


def test_following_leaves_with_the_jobs_code(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = EvaluationView(version=600, metrics={"accuracy": 0.971})
    cluster.first_word = status(
        "Succeeded", ratio=1.0, version=600, evaluations=(evaluation,), digest="sha256:3f"
    )
    assert main([*FLAGS, "--follow"]) == 0
    assert "Succeeded  test-mnist in 1m" in capsys.readouterr().out
    cluster.first_word = status("Stopped")
    assert main([*FLAGS, "--follow", "--job_name=two"]) == 7


def test_dry_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FLAGS, "--dry-run"]) == 0  # needs no cluster
    printed = capsys.readouterr().out.splitlines()
    assert ["num_workers", "4", "command", "line,", "over", "default", "2"] in [
        line.split() for line in printed
    ]
    assert "elasticdl-test-mnist-master" in "\n".join(printed)
    with played_cluster(home.parent / "kubeconfig") as cluster:
        cluster.add_node()
        cluster.grant()
        assert main([*FLAGS, "--dry_run=server"]) == 0
        assert "The API server would take elasticdl-test-mnist-master" in capsys.readouterr().out
        assert cluster.store.list("pods") == []
    assert main([*FLAGS, "--dry-run", "nowhere"]) == 2
    assert '"nowhere" belongs to no flag' in capsys.readouterr().err


def test_manifests_are_what_a_submission_creates(
    cluster: PlayedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FLAGS, "--yaml=job.yaml"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: kubectl apply -f job.yaml"
    assert pods(cluster) == []
    (written,) = yaml.safe_load_all((tmp_path / "job.yaml").read_text())
    assert main([*FLAGS, "--yaml=-"]) == 0
    assert next(yaml.safe_load_all(capsys.readouterr().out)) == written
    assert main(FLAGS) == 0
    (created,) = pods(cluster)
    assert created["spec"]["containers"][0]["command"] == written["spec"]["containers"][0]["command"]
    assert created["metadata"]["annotations"][CONFIG] == written["metadata"]["annotations"][CONFIG]


def test_an_evaluation_is_submitted(
    cluster: PlayedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_claim(cluster, "mnist")
    flags = [
        "evaluate",
        "--model_def=mnist.mnist_functional_api.custom_model",
        "--validation_data=/data/mnist/test",
        "--checkpoint_dir_for_init=/data/ckpt",
        "--image_name=edlz:mnist",
        "--job_name=test-mnist",
    ]
    on_claim = "--volume=claim_name=mnist,mount_path=/data"
    assert main([*flags, on_claim, "--dry-run"]) == 0
    assert main([*flags, on_claim, f"--yaml={tmp_path}/job.yaml"]) == 0
    assert pods(cluster) == []
    capsys.readouterr()
    assert main([*flags, on_claim]) == 0
    printed = capsys.readouterr().out
    assert "  ok     begins from  /data/ckpt lies on a volume\n" in printed
    assert "lost with" not in printed
    (pod,) = pods(cluster)
    command = pod["spec"]["containers"][0]["command"]
    assert {"--validation_data=/data/mnist/test", "--checkpoint_dir_for_init=/data/ckpt"} <= set(command)
    (written,) = yaml.safe_load_all((tmp_path / "job.yaml").read_text())
    assert command == written["spec"]["containers"][0]["command"]
    assert "validation_data: " in pod["metadata"]["annotations"][CONFIG]
    assert main([*flags, "--job_name=two"]) == 0
    assert "  warn   begins from  /data/ckpt lies on no volume" in capsys.readouterr().out
    assert main([*flags, "--training_data=/data/mnist/train"]) == 2
    assert "--training_data belongs to edlz train" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            ["--output=/data/out"],
            "ok     export       /data/out, from a last checkpoint in /data/out.checkpoints",
        ),
        (["--output=/data/out", "--job_dir=/data/jobs/x"], "ok     export       /data/out lies on a volume"),
        (
            ["--output=/out"],
            'no     export       output "/out" lies on no volume: it would go with a worker\'s pod',
        ),
        (
            ["--output=/data/out", "--checkpoint_dir=/ckpt"],
            'no     export       checkpoint_dir "/ckpt" lies on no volume: no worker could read the finished model there',
        ),
    ],
)
def test_where_a_model_can_be_exported_to(
    flags: list[str], line: str, cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    add_claim(cluster, "mnist")
    is_fine = line.startswith("ok")
    assert main([*FLAGS, "--volume=claim_name=mnist,mount_path=/data", *flags]) == (0 if is_fine else 3)
    printed = capsys.readouterr().out
    assert f"  {line}\n" in printed
    assert bool(pods(cluster)) is is_fine


def test_a_prediction_is_submitted_if_its_output_lies_on_a_volume(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "predict",
        "--model_def=mnist.mnist_functional_api.custom_model",
        "--prediction_data=/data/mnist/test",
        "--checkpoint_dir_for_init=/data/ckpt",
        "--prediction_output=/data/out",
        "--prediction_format=csv",
        "--image_name=edlz:mnist",
    ]
    assert main(flags) == 3
    assert '  no     output       prediction_output "/data/out" lies on no volume' in capsys.readouterr().out
    assert pods(cluster) == []
    add_claim(cluster, "mnist")
    assert main([*flags, ON_CLAIM[0]]) == 0
    printed = capsys.readouterr()
    assert "Submitted mnist-functional-api-predict." in printed.out
    assert "  ok     output       /data/out lies on a volume" in printed.out
    (pod,) = pods(cluster)
    assert set(flags[2:6]) <= set(pod["spec"]["containers"][0]["command"])
    assert main([*flags[:2], flags[6]]) == 2
    assert "--prediction_data is missing" in capsys.readouterr().err
    assert main([*flags[:4], "--prediction_output=out", flags[6]]) == 2
    assert '--prediction_output="out" is no absolute path' in capsys.readouterr().err


def test_resume_makes_new_pods(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    add_claim(cluster, "mnist")
    assert main([*FLAGS, *ON_CLAIM]) == 0
    assert main(["resume", "test-mnist"]) == 2
    assert "edlz stop test-mnist -n research, then edlz resume" in capsys.readouterr().err
    cluster.say("test-mnist", status("Stopped"), "research")
    before = pods(cluster)[0]["metadata"]["uid"]
    assert main(["resume", "test-mnist", "--num_workers=2"]) == 0
    (pod,) = pods(cluster)
    command = pod["spec"]["containers"][0]["command"]
    assert pod["metadata"]["uid"] != before
    assert {"--resume=yes", "--num_workers=2", "--job_dir=/data/jobs/test-mnist"} <= set(command)
    assert main(["resume", "test-mnist", "--minibatch_size=2"]) == 2

    cluster.say("test-mnist", status("Succeeded"), "research")
    before = pods(cluster)
    capsys.readouterr()
    assert main(["resume", "test-mnist"]) == 0
    assert 'job "test-mnist" has succeeded already' in capsys.readouterr().out
    assert pods(cluster) == before

    assert main([*FLAGS, "--job_name=kept-nowhere"]) == 0
    cluster.say("kept-nowhere", status("Stopped"), "research")
    capsys.readouterr()
    assert main(["resume", "kept-nowhere"]) == 2
    assert "its files lay on no volume" in capsys.readouterr().err


def test_flags_of_a_cluster_need_an_image(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [flag for flag in FLAGS if not flag.startswith("--image_name")]
    assert main([*flags, "--namespace=research"]) == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        "error: --namespace=research without an image: the job would run on this machine",
        "help: add --image_name=IMAGE, or leave it out",
    ]


def test_the_module_is_the_command(cluster: PlayedCluster) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edlz.client", *FLAGS, "--dry_run"],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------- when things go wrong in the middle


def test_an_answer_that_is_lost_is_no_name_that_is_taken(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has made the pod, and the request is repeated: the pod that is there is this submission's."""
    send, lost = Cluster._send, list[str]()

    async def lossy(self: Cluster, method: str, path: str, *rest: Any) -> Any:
        answer = await send(self, method, path, *rest)
        if method == "POST" and path.endswith("/pods") and not lost:
            lost.append(path)
            await answer.read()
            raise ConnectionResetError("the connection broke")
        return answer

    monkeypatch.setattr(Cluster, "_send", lossy)
    assert main(FLAGS) == 0
    assert lost
    assert "Submitted test-mnist." in capsys.readouterr().out
    assert len(pods(cluster)) == 1
    assert main([*FLAGS, "--skip_preflight"]) == 3, "that of another submission is not"


def test_two_submissions_at_once(cluster: PlayedCluster) -> None:
    """Both find the name free; one creates the pod."""
    command = [sys.executable, "-m", "edlz.client", *FLAGS]
    both = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ended = sorted((one.communicate(timeout=120)[1], one.returncode) for one in both)
    assert [code for _, code in ended] == [0, 3]
    assert ended[1][0].startswith('error: job "test-mnist" exists')
    assert len(pods(cluster)) == 1


def test_a_quota_that_is_used_up(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the creation shows it: the checks cannot know what a quota counts."""
    text = 'pods "elasticdl-test-mnist-master" is forbidden: exceeded quota: few, requested: pods=1, used: pods=4'
    monkeypatch.setitem(faults._TEXTS, 403, text)
    cluster.server.faults.refuse(
        403, matches=lambda method, path: method == "POST" and path.endswith("/pods")
    )
    assert main(FLAGS) == 3
    assert capsys.readouterr().err == (
        f"error: {text}\nhelp: ask for less, or for a greater quota: kubectl describe quota -n research\n"
    )
    assert pods(cluster) == list_places() == []


def test_a_server_that_takes_connections_and_says_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edlz.client.cluster.checks.LIMIT_S", 0.5)
    for module in ("submission._SERVER_S", "connection.REQUEST_S"):
        monkeypatch.setattr(f"edlz.client.cluster.{module}", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent, played_cluster(home.parent / "kubeconfig"):
        kubeconfig = yaml.safe_load((home.parent / "kubeconfig").read_text())
        kubeconfig["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        (home.parent / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        assert main(FLAGS) == 3
        assert "answer" in capsys.readouterr().err
        for command in ([*FLAGS, "--skip_preflight"], ["ls", "-n", "research"]):
            assert main(command) == 5
            error = capsys.readouterr().err
            assert error.startswith("error: the cluster at http://127.0.0.1:")
            assert "it does not answer" in error


@pytest.mark.parametrize("follow", [False, True])
def test_ctrl_c_leaves_the_view_and_the_job(
    follow: bool, cluster: PlayedCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    if not follow:
        cluster.first_word = None  # so that the submission goes on waiting for the master
    command = [sys.executable, "-m", "edlz.client", *FLAGS, *(["--follow"] if follow else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("Master ") if not follow else line.startswith("  edlz scale"):
                break
        running.send_signal(signal.SIGINT)
        _, error = running.communicate(timeout=60)
    assert running.returncode == 130, error
    back = f"edlz {'logs -f' if follow else 'status'} test-mnist -n research"
    assert error.splitlines()[-1] == (
        f"Left the view; test-mnist -n research goes on. Back: {back}   Stop: edlz stop test-mnist -n research"
    )
    assert "Traceback" not in error
    assert len(pods(cluster)) == 1


def test_ctrl_c_before_the_pod_is_there(cluster: PlayedCluster) -> None:
    asked: list[str] = []
    cluster.server.faults.refuse(503, matches=lambda _, path: asked.append(path) is None)
    command = [sys.executable, "-m", "edlz.client", *FLAGS, "--skip_preflight"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: asked, "the request has come")
        running.send_signal(signal.SIGINT)
        out, error = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert error.splitlines()[-1] == "Interrupted. Whether test-mnist was submitted: edlz ls"
    assert "Traceback" not in error

"""`edlz train` with an image: checks, the master's pod and what is said, against an emulated API server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import edlz.k8s
from edlz.client.cli import main
from edlz.client.cluster import submission
from edlz.client.cluster.index import list_places
from edlz.k8s.cluster.names import CONFIG
from edlz.services.protocol.job_status import EvaluationView, FailureView
from tests.k8s.played import PlayedCluster, played_cluster, status
from tests.k8s.server.access import User
from tests.k8s.server.objects.pod_security import LABEL
from tests.k8s.submitting import FLAGS, ON_CLAIM, add_claim, pods
from tests.shown_jobs import Terminal

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

MANIFESTS = Path(edlz.k8s.__path__[0]) / "manifests"


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


def test_why_a_master_does_not_come_up_fits_the_terminal(
    cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "MASTER_S", 0.3)
    for name, text in {"COLUMNS": "80", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr("sys.stdout", Terminal())
    cluster.first_word = None
    monkeypatch.setattr(
        submission, "master_line", lambda view: f"a node: 0/1 nodes are available: {'no room, ' * 9}"
    )
    assert main(FLAGS) == 0
    lines = sys.stdout.getvalue().splitlines()  # type: ignore[attr-defined]
    assert any("still waits after" in line for line in lines)
    assert max(map(len, lines)) <= 80


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


@pytest.mark.parametrize(
    ("flags", "then"),
    [
        ([], "training begins anew"),
        (["--checkpoint_dir=/data/ckpt"], "training begins anew"),
        (
            ["--checkpoint_dir=/data/ckpt", "--checkpoint_steps=9"],
            "training goes back to its newest checkpoint",
        ),
        (["--checkpoint_steps=9"], "training begins anew"),
        (["--job_dir=/data/jobs/x"], ""),
    ],
)
def test_where_workers_alone_share_no_folder_it_says_what_that_means(
    flags: list[str], then: str, cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    add_claim(cluster, "mnist")
    volume = "--volume=claim_name=mnist,mount_path=/data"
    assert main([*FLAGS, volume, "--distribution_strategy=AllreduceStrategy", *flags]) == 0
    printed = capsys.readouterr().out
    found = [line.split(maxsplit=2) for line in printed.splitlines() if "without any worker left" in line]
    text = f"the job's files lie on no volume: without any worker left, {then}"
    assert found == ([["warn", "files", text]] if then else [])


def test_an_analysis_needs_no_model_and_its_output_on_a_volume(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["analyze", "/data/a.csv", "--columns=age", "--image_name=edlz:mnist"]
    assert main(flags) == 2
    assert "error: --statistics_output is missing" in capsys.readouterr().err
    flags.append("--statistics_output=/data/out")
    assert main(flags) == 3
    assert '  no     output       statistics_output "/data/out" lies on no volume' in capsys.readouterr().out
    assert pods(cluster) == []
    add_claim(cluster, "mnist")
    assert main([*flags, ON_CLAIM[0]]) == 0
    printed = capsys.readouterr().out
    assert "  ok     output       /data/out lies on a volume" in printed
    assert "not readable from here; the master checks them before anything else" in printed


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

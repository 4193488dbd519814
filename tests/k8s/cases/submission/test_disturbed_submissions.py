"""Submissions in which something goes wrong in the middle, against an emulated API server."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from edlz.client.cli import main
from edlz.client.cluster.index import list_places
from edlz.k8s.cluster.api import Cluster
from tests.k8s.any_cluster import wait_for
from tests.k8s.played import PlayedCluster, played_cluster
from tests.k8s.server import faults
from tests.k8s.submitting import FLAGS, pods

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")


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

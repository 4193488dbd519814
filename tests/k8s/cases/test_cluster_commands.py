"""The commands on jobs of a cluster, from the command line to an emulated API server, whose pods the test plays."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from edlz.client.cli import main
from edlz.client.cluster import job, pod_logs, removal, submission
from edlz.client.cluster.index import Place, list_places, remember_place
from edlz.k8s.cluster.names import CONFIG, STOP, WORKERS
from edlz.k8s.pods import stuck_pods
from edlz.services.protocol.job_status import EventView, FailureView, PartitionView, WorkerView
from tests.command_logging import logging_restored
from tests.k8s.any_cluster import wait_for
from tests.k8s.played import PlayedCluster, played_cluster, status
from tests.k8s.server.pod_logs import ListedLog

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

WORKING = (WorkerView(id="0", state="training", task=7, records_per_s=2130.0),)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    for name in ("FORCE_COLOR", "EDLZ_DEBUG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for module in (job, pod_logs, submission):
        monkeypatch.setattr(module, "POLL_S", 0.05)
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    with logging_restored():
        yield


@pytest.fixture
def cluster(home: Path) -> Iterator[PlayedCluster]:
    with played_cluster(home.parent / "kubeconfig", "research") as played:
        for name in ("research", "lab"):
            played.store.create(
                "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        played.add_node()
        yield played


def training(cluster: PlayedCluster, name: str = "mnist", settings: str = "num_workers: 2\n") -> str:
    """A job that trains in "research"; return its master's pod."""
    cluster.add_pod(name, "master", "research", **{CONFIG: settings})
    for other in ("ps-0", "worker-0", "worker-1"):
        cluster.add_pod(name, other, "research")
    master = f"elasticdl-{name}-master"
    for pod in ("master", "ps-0", "worker-0"):
        cluster.run(f"elasticdl-{name}-{pod}", "research")
    cluster.unschedulable(
        f"elasticdl-{name}-worker-1",
        "0/6 nodes are available: 6 Insufficient cpu. preemption: 0/6 nodes are available: none helps.",
        "research",
    )
    event = EventView(seq=1, at=time.time(), kind="worker", text="worker-0 joined.")
    partitions = (PartitionView(id="0", state="serving", version=354),)
    said = status(name=name, ratio=0.59, version=354, workers=WORKING, partitions=partitions, events=(event,))
    cluster.say(name, said, "research")
    return master


def submitted(name: str = "mnist", **more: str) -> Place:
    """Remember a job as one that was submitted from here."""
    place = Place(name=name, namespace="research", context="emulated", submitted_at=time.time(), **more)
    remember_place(place)
    return place


# ---------------------------------------------------------------- looking at jobs


def test_a_job_of_a_namespace_is_seen(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    training(cluster)
    assert main(["status", "mnist", "-n", "research"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("mnist  Training  59 %  epoch 0/2  v354")
    assert "k8s/research, 1m" in shown[0]
    (waiting,) = [line for line in shown if line.startswith("worker-1")]
    assert waiting.split(maxsplit=5)[5] == "Pending: 0/6 nodes: Insufficient cpu"
    assert shown[-1] == "next: edlz logs -f mnist -n research    edlz stop mnist -n research"

    assert main(["status", "-n", "research", "-o", "json"]) == 0  # the one that runs
    found = json.loads(capsys.readouterr().out)
    assert found["job"]["where"] == "k8s/research"
    assert found["job"]["pod"] == "elasticdl-mnist-master"
    assert [worker["state"] for worker in found["workers"]] == ["training", "starting"]


def test_ls_lists_both_homes(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    training(cluster)
    training(cluster, "other")
    submitted()
    assert main(["ls"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed[1:-1]] == ["mnist"]  # the other one is somebody else's
    assert "k8s/research" in listed[1]
    assert "1/2" in listed[1]
    assert listed[1].endswith("worker-1 Pending: 0/6 nodes: Insufficient cpu")
    assert main(["ls", "-n", "research"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in listed[1:-1]) == ["mnist", "other"]


def test_a_cluster_that_does_not_answer_holds_nothing_up(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with played_cluster(home.parent / "kubeconfig", "research") as cluster:
        training_place = submitted(settings="num_workers: 4\n")
        cluster.server.down()
        assert main(["ls"]) == 0
        listed = capsys.readouterr().out.splitlines()
        assert listed[1].split()[:5] == ["mnist", "Unknown", "-", "0/4", "k8s/research"]
        assert main(["status", "mnist"]) == 5
        error = capsys.readouterr().err
        assert error.startswith("error: the cluster at http://127.0.0.1:")
        cluster.server.up()
        assert list_places() == [training_place]


def test_why_a_master_waits(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_pod("mnist", "master", "research", **{CONFIG: "num_workers: 2\n"})
    cause = "docker.io/library/edlz:mnist: not found"
    message = f'Back-off pulling image "edlz:mnist": ErrImagePull: rpc error: code = NotFound desc = {cause}'
    cluster.wait("elasticdl-mnist-master", "ImagePullBackOff", message, "research")
    assert main(["status", "mnist", "-n", "research"]) == 0
    shown = capsys.readouterr().out
    assert "mnist  Pending" in shown
    assert f"the master waits: image edlz:mnist cannot be pulled: {cause}" in shown


def test_what_is_not_there(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "mnist", "-n", "research"]) == 4
    assert capsys.readouterr().err == 'error: no job "mnist" in k8s/research\nhelp: edlz ls -n research\n'
    assert main(["status", "mnist"]) == 4
    capsys.readouterr()
    for command in (["status", "mnist"], ["ls"], ["stop", "mnist"], ["rm", "mnist"]):
        assert main([*command, "-n", "reserach"]) == 4, command
        assert capsys.readouterr().err.splitlines() == [
            'error: there is no namespace "reserach"',
            "help: those that there are: kubectl get namespaces",
        ]
    submitted(settings="num_workers: 2\n")
    assert main(["status", "mnist"]) == 0  # submitted from here, deleted by somebody
    shown = capsys.readouterr().out
    assert "its master pod is gone" in shown
    assert shown.splitlines()[-1] == "next: edlz rm mnist -n research"
    assert main(["rm", "mnist"]) == 0
    assert list_places() == []


def test_a_name_in_both_homes(cluster: PlayedCluster, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training(cluster)
    submitted()
    folder = home / "jobs" / "mnist"
    folder.mkdir(parents=True)
    (folder / ".edlz-job").touch()
    assert main(["status", "mnist"]) == 2
    assert capsys.readouterr().err == (
        'error: which job? "mnist" is on this machine and in k8s/research\n'
        f"help: {folder} or mnist -n research\n"
    )
    assert main(["status", "mnist", "-n", "research"]) == 0
    assert "k8s/research" in capsys.readouterr().out
    assert main(["status", str(folder)]) == 0
    assert "local" in capsys.readouterr().out
    remember_place(Place(name="mnist", namespace="lab", submitted_at=1.0))
    assert main(["stop", "mnist"]) == 2
    assert "is on this machine and in k8s/lab and k8s/research" in capsys.readouterr().err


def test_watching_ends_with_the_job(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    training(cluster)

    def looks() -> int:
        return sum("/pods?" in path for _, path in tuple(cluster.server.requests))

    def end() -> None:
        wait_for(lambda: looks() >= 3, "it is looked at again, so what was seen before is shown")
        cluster.say("mnist", status("Succeeded", ratio=1.0), "research")

    ending = threading.Thread(target=end)
    ending.start()
    assert main(["top", "mnist", "-n", "research"]) == 0
    ending.join()
    printed = capsys.readouterr()
    assert "worker-1 Pending: 0/6 nodes: Insufficient cpu" in printed.out + printed.err
    assert "mnist  Succeeded  100 %" in printed.out


# ---------------------------------------------------------------- leading jobs


def test_scale_sets_the_annotation(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    training(cluster, settings="num_workers: 2\nmin_workers: 1\nmax_workers: 3\n")
    assert main(["scale", "mnist", "--workers=3", "-n", "research"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "mnist -n research: 2 -> 3 workers.  "
        "warning: grads_to_wait=2, so 1 worker would wait; start with --grads_to_wait=3"
    )
    assert cluster.annotation("mnist", WORKERS, "research") == "3"
    assert main(["scale", "mnist", "--workers=4", "-n", "research"]) == 2
    assert "workers=4 is more than --max_workers=3" in capsys.readouterr().err
    assert main(["scale", "mnist", "--workers=0", "-n", "research"]) == 2
    assert cluster.annotation("mnist", WORKERS, "research") == "3"


def test_stop_waits_for_the_end(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    training(cluster)

    def obey() -> None:
        wait_for(lambda: cluster.annotation("mnist", STOP, "research") is not None, "the order to stop")
        cluster.say("mnist", status("Stopped", ratio=0.6, version=360, checkpoint=360), "research")

    master = threading.Thread(target=obey)
    master.start()
    assert main(["stop", "mnist", "-n", "research"]) == 0
    master.join()
    assert cluster.annotation("mnist", STOP, "research") == "save"
    printed = capsys.readouterr()
    assert printed.err == "stopping mnist -n research …\n"
    assert printed.out.startswith("mnist  Stopped  60 %")
    assert main(["stop", "mnist", "-n", "research"]) == 2
    assert 'job "mnist -n research" is not running: Stopped' in capsys.readouterr().err


def test_stop_now_deletes_the_master(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    training(cluster)
    submitted(settings="num_workers: 2\n")
    kubelet = threading.Thread(target=_finish_deletion, args=(cluster, "elasticdl-mnist-master"))
    kubelet.start()
    assert main(["stop", "mnist", "--now"]) == 0
    kubelet.join()
    assert cluster.store.find("pods", "elasticdl-mnist-master", "research") is None
    assert "its master pod is gone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (status("Succeeded", ratio=1.0), 0),
        (status("Failed", failure=FailureView(text="task 3 raised the same error 3 times")), 1),
        (status("Failed", failure=FailureView(text="no data", exit_code=2)), 2),
        (status("Stopped"), 7),
    ],
)
def test_wait_leaves_with_the_jobs_code(
    said: msgspec.Struct, code: int, cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    training(cluster)
    assert main(["wait", "mnist", "-n", "research", "--timeout=0.2"]) == 6
    cluster.say("mnist", said, "research")  # type: ignore[arg-type]
    assert main(["wait", "mnist", "-n", "research"]) == code


def test_a_master_that_ended_without_a_word(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add_pod("mnist", "master", "research")
    cluster.end("elasticdl-mnist-master", 137, "research")
    assert main(["wait", "mnist", "-n", "research"]) == 1
    assert "its master ended: exit code 137" in capsys.readouterr().out


def test_rm_takes_only_what_has_ended(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    master = training(cluster)
    assert main(["rm", "mnist", "-n", "research"]) == 2
    assert "edlz stop mnist -n research, then edlz rm mnist -n research" in capsys.readouterr().err
    cluster.say("mnist", status("Succeeded"), "research")
    removing = threading.Thread(target=_finish_deletion, args=(cluster, master))
    removing.start()
    assert main(["rm", "mnist", "-n", "research"]) == 0
    removing.join()
    assert cluster.store.find("pods", master, "research") is None


def _finish_deletion(cluster: PlayedCluster, pod: str) -> None:
    """Do what the kubelet does when a pod is asked to go."""
    metadata = lambda: cluster.store.get("pods", pod, "research")["metadata"]  # noqa: E731
    wait_for(lambda: "deletionTimestamp" in metadata(), "the pod is asked to go")
    cluster.store.delete("pods", pod, "research", grace_s=0)


def test_stop_of_a_master_that_hears_nothing(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add_pod("mnist", "master", "research")
    kubelet = threading.Thread(target=_finish_deletion, args=(cluster, "elasticdl-mnist-master"))
    kubelet.start()
    assert main(["stop", "mnist", "-n", "research"]) == 0
    kubelet.join()
    assert "its master pod is gone" in capsys.readouterr().out


def lost(cluster: PlayedCluster, *, is_evicted: bool) -> str:
    """A job whose master, a server and a worker were on a node that does not answer; return its master's pod."""
    master = training(cluster, settings="num_workers: 2\n")
    for pod in ("master", "ps-0", "worker-0"):
        cluster.lose_node(f"elasticdl-mnist-{pod}", "research")
        if is_evicted:
            cluster.store.delete("pods", f"elasticdl-mnist-{pod}", "research", grace_s=1)
    cluster.store.delete("pods", "elasticdl-mnist-worker-1", "research", grace_s=0)
    return master


def test_a_job_whose_masters_node_is_lost_is_seen_and_ended(
    cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stuck_pods, "MARGIN_S", 0.1)
    lost(cluster, is_evicted=True)
    assert main(["status", "mnist", "-n", "research"]) == 0
    assert "the node of its master does not answer" in capsys.readouterr().out
    assert main(["stop", "mnist", "-n", "research"]) == 2
    said = capsys.readouterr().err
    assert "is not running: Stopped, the node of its master does not answer" in said

    assert main(["stop", "mnist", "--now", "-n", "research"]) == 0
    said = capsys.readouterr().err
    assert "deleted by force, since their nodes do not answer: " in said
    assert all(name in said for name in ("master", "ps-0", "worker-0"))
    assert cluster.store.list("pods", "research") == []


def test_a_job_whose_masters_node_is_lost_is_removed(
    cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stuck_pods, "MARGIN_S", 0.1)
    master = lost(cluster, is_evicted=True)
    assert main(["rm", "mnist", "-n", "research"]) == 0
    said = capsys.readouterr().out
    assert "deleted by force, since their nodes do not answer: " in said
    assert "is removed: its pods, services and keys are deleted" in said
    assert cluster.store.find("pods", master, "research") is None


def test_stop_does_not_wait_for_a_master_that_is_cut_off(
    cluster: PlayedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pods are not evicted yet: that takes Kubernetes five minutes."""
    monkeypatch.setattr(stuck_pods, "MARGIN_S", 0.1)
    monkeypatch.setattr(removal, "GONE_S", 2.0)
    master = lost(cluster, is_evicted=False)
    assert main(["stop", "mnist", "-n", "research"]) == 0
    said = capsys.readouterr().err
    assert "deleted by force, since their nodes do not answer: master" in said
    assert "still there after 2s: ps-0, worker-0" in said  # nobody collects here what the master owned
    assert cluster.store.find("pods", master, "research") is None


def test_stop_all_of_a_namespace(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    training(cluster)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert main(["stop", "--all", "-n", "research"]) == 1
    assert capsys.readouterr().err == "stop mnist -n research? [y/N] nothing was stopped\n"
    assert main(["stop", "--all", "-n", "lab"]) == 0
    assert capsys.readouterr().out == "no job runs in lab\nnext: edlz ls\n"


# ---------------------------------------------------------------- logs


def log_line(second: int, text: str) -> tuple[float, bytes]:
    return 1_777_885_923.0 + second, f"{text}\n".encode()


def test_logs_of_all_pods_by_time(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    training(cluster)
    cluster.logs["elasticdl-mnist-master"] = ListedLog([log_line(1, "m1"), log_line(4, "m4")])
    cluster.logs["elasticdl-mnist-worker-0"] = ListedLog([log_line(2, "w2"), log_line(5, "w5")])
    assert main(["logs", "mnist", "-n", "research"]) == 0
    assert capsys.readouterr().out == "master │ m1\nworker-0 │ w2\nmaster │ m4\nworker-0 │ w5\n"
    assert main(["logs", "mnist", "-n", "research", "--worker=0", "--tail=1"]) == 0
    assert capsys.readouterr().out == "w5\n"
    assert main(["logs", "mnist", "-n", "research", "--grep=4"]) == 0
    assert capsys.readouterr().out == "master │ m4\n"
    assert main(["logs", "mnist", "-n", "research", "--since=1d"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["logs", "mnist", "-n", "research", "--worker=7"]) == 4
    assert "there are: master, ps-0, worker-0, worker-1" in capsys.readouterr().err


def test_logs_of_pods_that_are_gone(cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_pod("mnist", "master", "research")
    cluster.run("elasticdl-mnist-master", "research")
    cluster.logs["elasticdl-mnist-master"] = ListedLog([log_line(1, "m1")])
    cluster.say("mnist", status("Succeeded"), "research")
    assert main(["logs", "mnist", "-n", "research", "--worker=0"]) == 4
    assert capsys.readouterr().err.splitlines() == [
        'error: job "mnist -n research" has ended, and the log of worker-0 went with its pod; kept: master',
        "help: edlz logs mnist -n research; edlz status mnist -n research",
    ]
    assert main(["logs", "mnist", "-n", "research"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "master │ m1\n"
    assert printed.err.startswith(
        "mnist -n research: logs of parameter servers and workers went with their pods; "
    )
    assert printed.err.endswith("lets the master keep their last lines, --log_file_path keeps all\n")
    assert main(["logs", "-f", "mnist", "-n", "research", "--master"]) == 0
    assert capsys.readouterr().out == "m1\n"


def test_a_log_that_cannot_be_read_is_said(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    training(cluster)
    cluster.logs["elasticdl-mnist-worker-0"] = ListedLog([log_line(2, "w2")])
    cluster.server.faults.refuse(500, 1, matches=lambda _, path: "elasticdl-mnist-master/log" in path)
    assert main(["logs", "mnist", "-n", "research"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "worker-0 │ w2\n"
    assert printed.err.startswith("warning: the log of master cannot be read: ")


def test_following_takes_new_pods_and_ends_with_the_job(
    cluster: PlayedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    training(cluster)
    master = ListedLog([log_line(1, "m1")], is_ended=False)
    worker = ListedLog([log_line(2, "w2")], is_ended=False)
    cluster.logs |= {"elasticdl-mnist-master": master, "elasticdl-mnist-worker-0": worker}

    def has_shown(text: str) -> bool:
        return text in sys.stdout.getvalue()  # type: ignore[attr-defined]  # read without taking it away

    def go_on() -> None:
        wait_for(lambda: has_shown("w2"), "what is written already")
        worker.written.append(log_line(3, "w3"))
        cluster.server.faults.drop_watches()
        cluster.logs["elasticdl-mnist-worker-2"] = ListedLog([log_line(4, "new")])
        cluster.add_pod("mnist", "worker-2", "research")
        wait_for(lambda: has_shown("new"), "the log of a new pod")
        worker.written.append(log_line(5, "w5"))
        worker.ended = master.ended = True
        cluster.say("mnist", status("Succeeded"), "research")

    going = threading.Thread(target=go_on)
    going.start()
    assert main(["logs", "-f", "mnist", "-n", "research"]) == 0
    going.join()
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert sorted(lines) == sorted(
        ["master │ m1", "worker-0 │ w2", "worker-0 │ w3", "worker-2 │ new", "worker-0 │ w5"]
    )
    assert lines[:2] == ["master │ m1", "worker-0 │ w2"]
    assert printed.err == "mnist -n research succeeded: edlz status mnist -n research\n"

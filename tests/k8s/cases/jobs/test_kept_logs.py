"""The last lines of pods that are gone: read before they go, kept in a folder and on the cluster, shown by `edlz logs`."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edlz.client.cli import main
from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.names import Owner, labels, pod_name
from edlz.k8s.objects.job_objects import JobObjects
from edlz.k8s.pods.log_folder import LogFolder
from edlz.k8s.pods.log_keeper import LogKeeper
from edlz.k8s.pods.pod_log import PodLog, logs_selector, read_config_map
from edlz.services.configuration.job_config import JobConfig
from tests.command_logging import logging_restored
from tests.k8s.any_cluster import wait_for
from tests.k8s.cluster import TestCluster
from tests.k8s.played import NODE, PlayedCluster, played_cluster, status
from tests.k8s.server.access import User
from tests.k8s.server.pod_logs import ListedLog
from tests.k8s.sleeping_job import Sleeping, sleeping_job

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

JOB = "j"
MASTER = pod_name(JOB, "master")
ACCOUNT = User("system:serviceaccount:default:default", ("system:serviceaccounts", "system:authenticated"))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedCluster]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with logging_restored(), played_cluster(tmp_path / "kubeconfig") as played:
        played.add_node()
        played.add_pod(JOB, "master")
        played.run(MASTER)
        played.say(JOB, status(name=JOB))
        yield played


def add_pod(cluster: PlayedCluster, name: str, *said: str, is_ended: bool = True, owner: str = "") -> Any:
    """A pod of the job that has printed these lines; return it."""
    whole = pod_name(JOB, name)
    uid = owner or cluster.store.get("pods", MASTER, "default")["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": MASTER, "uid": uid}
    about = {"name": whole, "labels": labels(JOB, name), "ownerReferences": [reference]}
    containers = [{"name": whole, "image": "edlz:mnist"}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": about}
    cluster.store.create("pods", {**body, "spec": {"containers": containers, "nodeName": NODE}}, "default")
    cluster.run(whole)
    lines = [(1_777_885_923.0 + number, f"{text}\n".encode()) for number, text in enumerate(said)]
    cluster.logs[whole] = ListedLog(lines, is_ended=is_ended)
    return cluster.store.get("pods", whole, "default")


@asynccontextmanager
async def keeping(cluster: PlayedCluster, folder: Path) -> AsyncIterator[tuple[LogKeeper, Cluster]]:
    """Keep logs, as a master does."""
    uid = cluster.store.get("pods", MASTER, "default")["metadata"]["uid"]
    config = JobConfig(job_name=JOB, image_name="i")
    async with await Cluster.connect(config) as connection:
        objects = JobObjects(config, Owner(MASTER, uid), "127.0.0.1:50001", Sleeping())
        keeper = LogKeeper(connection, objects, LogFolder(folder / "pods"))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(keeper.run())
            yield keeper, connection
            await keeper.settle(20.0)
            running.cancel()


async def look(keeper: LogKeeper, connection: Cluster) -> None:
    keeper.see((await connection.list_pods()).items)


def published(cluster: PlayedCluster) -> list[PodLog]:
    found = cluster.store.list("configmaps", "default")
    return [log for one in found if (log := read_config_map(one))]


def test_a_pod_that_has_ended_is_not_deleted_before_its_log_is_kept(
    cluster: PlayedCluster, tmp_path: Path
) -> None:
    async def run() -> None:
        pod = add_pod(cluster, "worker-0", "one", "two")
        cluster.end(pod_name(JOB, "worker-0"), 1)
        async with keeping(cluster, tmp_path) as (keeper, connection):
            await look(keeper, connection)
            await keeper.hold(pod["metadata"]["uid"])
            (log,) = LogFolder(tmp_path / "pods").logs()
            assert [line.partition(" ")[2] for line in log.lines()] == [
                "one",
                "two",
                "--- ended: exit code 1",
            ]
            await look(keeper, connection)  # it is there still, and is not kept twice
        assert len(published(cluster)) == 1

    asyncio.run(run())


def test_a_pod_that_was_asked_to_go_is_followed_to_its_end(cluster: PlayedCluster, tmp_path: Path) -> None:
    whole = pod_name(JOB, "worker-1")

    async def run() -> None:
        add_pod(cluster, "worker-1", "begins", is_ended=False)
        async with keeping(cluster, tmp_path) as (keeper, connection):
            await connection.delete("Pod", whole, grace_s=30)
            await look(keeper, connection)
            asked = cluster.server.requests
            await asyncio.to_thread(
                wait_for,
                lambda: any(f"{whole}/log?follow=true" in path for _, path in asked),
                "it is followed",
            )
            log = cluster.logs[whole]
            assert isinstance(log, ListedLog)
            log.written.append((1_777_885_930.0, b"saved in time\n"))
            log.ended = True
            cluster.end(whole, 143)
            await look(keeper, connection)
        (kept,) = published(cluster)
        assert kept.name == "worker-1"
        assert [line.partition(" ")[2] for line in kept.lines()] == [
            "begins",
            "saved in time",
            "--- ended: its pod was deleted",
        ]

    asyncio.run(run())


def test_another_masters_pods_and_names_that_are_taken_anew(cluster: PlayedCluster, tmp_path: Path) -> None:
    async def run() -> None:
        add_pod(cluster, "worker-5", "not ours", owner="another")
        cluster.end(pod_name(JOB, "worker-5"), 1)
        old = add_pod(cluster, "ps-0", "of the old one")
        async with keeping(cluster, tmp_path) as (keeper, connection):
            cluster.end(pod_name(JOB, "ps-0"), 1)
            ended = (await connection.list_pods()).items
            await connection.delete("Pod", pod_name(JOB, "ps-0"), grace_s=0, uid=old["metadata"]["uid"])
            add_pod(cluster, "ps-0", "of the new one")
            keeper.see(ended)
        (kept,) = published(cluster)
        assert (kept.name, len(kept.lines())) == ("ps-0", 1), "how it ended, and no line of another pod"

    asyncio.run(run())


def test_without_the_right_to_make_objects_the_folder_has_them(
    cluster: PlayedCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.grant()
    role = cluster.store.get("roles", "edlz-master", "default")
    rules = [rule for rule in role["rules"] if rule["resources"] != ["configmaps"]]
    cluster.store.patch("roles", "edlz-master", {"rules": rules}, "default")
    cluster.server.write_kubeconfig(tmp_path / "kubeconfig", ACCOUNT, "default")

    async def run() -> None:
        for number in range(3):
            add_pod(cluster, f"worker-{number}", "one")
            cluster.end(pod_name(JOB, f"worker-{number}"))
        async with keeping(cluster, tmp_path) as (keeper, connection):
            await look(keeper, connection)

    asyncio.run(run())
    assert len(LogFolder(tmp_path / "pods").logs()) == 3
    assert published(cluster) == []
    told = [record.message for record in caplog.records if "stay in the job's folder" in record.message]
    assert len(told) == 1
    assert "may not create configmaps" in told[0]


def test_another_master_on_the_same_files_publishes_what_it_finds(
    cluster: PlayedCluster, tmp_path: Path
) -> None:
    folder = LogFolder(tmp_path / "pods")
    folder.keep(PodLog.of("worker-9", "12345678", 1_777_885_923.0, ["2026-05-04T09:12:00Z old"], "preempted"))

    async def run() -> None:
        async with keeping(cluster, tmp_path):
            await asyncio.to_thread(wait_for, lambda: published(cluster), "it is published")

    asyncio.run(run())
    asyncio.run(run())  # it is there already
    assert [log.name for log in published(cluster)] == ["worker-9"]


def test_logs_shows_them_among_the_others(
    cluster: PlayedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        for name in ("worker-0", "worker-1"):
            add_pod(cluster, name, f"of {name}")
            cluster.end(pod_name(JOB, name), 1)
        async with keeping(cluster, tmp_path) as (keeper, connection):
            await look(keeper, connection)
            await keeper.settle(20.0)
            await connection.delete("Pod", pod_name(JOB, "worker-0"), grace_s=0)

    asyncio.run(run())
    cluster.logs[MASTER] = ListedLog([(1_777_885_922.5, b"first\n")])
    assert main(["logs", JOB, "-n", "default"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "master │ first"
    assert sorted(shown[1:]) == [
        "worker-0 │ --- ended: exit code 1",
        "worker-0 │ of worker-0",
        "worker-1 │ of worker-1",  # its pod is there still
    ]
    assert main(["logs", JOB, "-n", "default", "--worker=0", "--tail=1"]) == 0
    assert capsys.readouterr().out == "--- ended: exit code 1\n"
    assert main(["logs", JOB, "-n", "default", "--worker=7"]) == 4
    assert "there are: master, worker-1, worker-0" in capsys.readouterr().err
    cluster.say(JOB, status("Succeeded", name=JOB))
    assert main(["logs", "-f", JOB, "-n", "default", "--worker=0"]) == 0
    assert capsys.readouterr().out == "of worker-0\n--- ended: exit code 1\n"
    assert logs_selector(JOB).startswith("app=elasticdl,")


@pytest.mark.fault
def test_the_log_of_a_worker_that_was_deleted(
    emulated_cluster: TestCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = emulated_cluster
    cluster.add_node("a", cpu="4")
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    script = "trap 'echo saved' TERM; echo here; while true; do sleep 0.05; done"
    monkeypatch.setattr(Sleeping, "command", ("sh", "-c", script))
    monkeypatch.setattr(Sleeping, "grace_s", 30)
    with sleeping_job(cluster, monkeypatch, workers=1, servers=1) as job:
        cluster.wait_for(lambda: job.pods("Running") == ["ps-0", "worker-0"], "pods that run")
        whole = pod_name(JOB, "worker-0")
        cluster.wait_for(lambda: "here" in cluster.log(whole), "it has begun")
        cluster.delete("pods", whole)
        asked = cluster.api.requests
        cluster.wait_for(lambda: any(f"{whole}/log?follow" in path for _, path in asked), "it is followed")
        cluster.wait_for(lambda: "saved" in cluster.log(whole), "it was told to go")
        cluster.kill_container(whole, signal.SIGKILL)
        cluster.wait_for(lambda: job.pods("Running") == ["ps-0", "worker-1"], "another worker")
        cluster.wait_for(lambda: cluster.store.list("configmaps", cluster.namespace), "its log")
        assert main(["logs", JOB, "-n", cluster.namespace, "--worker=0"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["here", "saved"]
    assert shown[2].startswith("--- ended: ")

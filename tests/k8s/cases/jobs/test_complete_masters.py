"""A master container that was killed when its job was complete, before it could say so: the next one only says it."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from edlz.k8s.cluster.names import STATUS
from edlz.k8s.container_end import read_mark
from edlz.k8s.master import OwnPod, run_master
from edlz.services.process.runtime import Stop
from edlz.services.protocol import named_status
from tests.builders import settings_in
from tests.complete_jobs import FINAL, completed
from tests.k8s.played import PlayedCluster, played_cluster
from tests.k8s.server.objects.history import Change

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

POD = "elasticdl-j-master"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with played_cluster(tmp_path / "kubeconfig") as played:
        played.add_node()
        played.grant()
        yield played


def test_it_ends_with_0_and_creates_no_pod(tmp_path: Path, cluster: PlayedCluster) -> None:
    cluster.add_pod("j", "master")
    uid = cluster.store.get("pods", POD, "default")["metadata"]["uid"]
    config = settings_in(
        tmp_path,
        image_name="edlz:mnist",
        num_ps_pods=2,
        num_workers=2,
        transport_security="none",
        restart_policy="Never",
    )
    completed(dataclasses.replace(config, launch_id=uid))
    assert read_mark(config.job_directory, uid) is None
    changes: list[Change] = []
    cluster.store.subscribe(changes.append)

    async def run() -> int:
        async with asyncio.timeout(30.0):  # else it would wait for workers
            return await run_master(config, OwnPod(POD, uid, "127.0.0.1"), Stop())

    assert asyncio.run(run()) == 0
    note = cluster.annotation("j", STATUS)
    assert note is not None
    told = named_status.decode(note)
    assert (told.state, told.digest, told.version) == ("Succeeded", "sha", 7)
    assert {change.resource for change in changes if change.kind == "ADDED"} <= {"events"}
    assert {change.after["metadata"]["name"] for change in changes if change.resource == "pods"} == {POD}
    assert read_mark(config.job_directory, uid) == (0, FINAL)

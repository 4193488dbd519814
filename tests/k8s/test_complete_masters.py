"""A master container that was killed when its job was complete, before it could say so: the next one only says it."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from edlz.api.recordio import Writer
from edlz.k8s.ended_mark import read_mark
from edlz.k8s.master import OwnPod, run_master
from edlz.k8s.names import STATUS
from edlz.services import named_status
from edlz.services.config import JobConfig
from edlz.services.job_status import JobStatus, PartitionView
from edlz.services.master.planning import open_journal
from edlz.services.runtime import Stop
from tests.k8s.history import Change
from tests.k8s.played import PlayedCluster, played_cluster

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


def config_of(folder: Path) -> JobConfig:
    (folder / "data").mkdir()
    with Writer(folder / "data" / "part-0") as writer:
        writer.write(b"x")
    return JobConfig(
        job_name="j",
        model_def="a.b",
        training_data=str(folder / "data"),
        job_dir=str(folder / "job"),
        endpoint=f"ipc://{folder}/m",
        image_name="edlz:mnist",
        num_ps_pods=2,
        num_workers=2,
        transport_security="none",
        restart_policy="Never",
    )


def left_complete(config: JobConfig, launch: str) -> JobStatus:
    """Leave the journal of a launch whose master was killed as soon as it was complete."""
    sealed = PartitionView(id="0", state="sealed", version=7, expected=9, applied=9)
    final = JobStatus(
        name="j",
        state="Succeeded",
        mode="sync",
        slots=1,
        started_at=1.0,
        now=9.0,
        version=7,
        digest="sha",
        partitions=(sealed,),
    )
    config.job_directory.mkdir()
    journal, _ = open_journal(dataclasses.replace(config, launch_id=launch), config.job_directory)
    with journal:
        journal.write(1, {"term": 1})
        journal.write(1, {"is_complete": True, "digest": "sha", "final": final})
    return final


def test_it_ends_with_0_and_creates_no_pod(tmp_path: Path, cluster: PlayedCluster) -> None:
    config = config_of(tmp_path)
    cluster.add_pod("j", "master")
    uid = cluster.store.get("pods", POD, "default")["metadata"]["uid"]
    final = left_complete(config, uid)
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
    assert read_mark(config.job_directory, uid) == (0, final)

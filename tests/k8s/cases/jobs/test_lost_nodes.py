"""Nodes that fall silent with pods on them: the job gets its services back without waiting for anybody's word."""

import pytest

from edlz.k8s.cluster.names import pod_name
from edlz.k8s.pods import stuck_pods
from tests.k8s.cluster import TestCluster
from tests.k8s.sleeping_job import JOB, SleepingJob, sleeping_job

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")
pytestmark = pytest.mark.fault


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck_pods, "MARGIN_S", 0.5)


def node_of(job: SleepingJob, name: str) -> str:
    return str(job.pod(name)["spec"]["nodeName"])


@pytest.mark.parametrize("is_back", [False, True])
def test_the_services_of_a_frozen_node_run_elsewhere(
    emulated_cluster: TestCluster, monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    """Its kubelet is silent and its containers run on: as recorded, the pods stay Terminating until they are forced."""
    cluster = emulated_cluster
    cluster.add_node("a", cpu="4")
    cluster.add_node("masters", cpu="0.01")
    with sleeping_job(cluster, monkeypatch, workers=1, servers=1, master_node="masters") as job:
        cluster.wait_for(lambda: job.pods("Running") == ["ps-0", "worker-0"], "pods that run")
        cluster.add_node("b", cpu="4")
        uid = job.pod("ps-0")["metadata"]["uid"]
        cluster.lose_node("a", crash=False)
        cluster.wait_for(lambda: "ps-0" in job.told.unreachable, "the node is known to be silent")
        cluster.wait_for(lambda: job.pods("Running") == ["ps-0", "worker-1"], "pods elsewhere")
        assert job.pod("ps-0")["metadata"]["uid"] != uid
        assert (node_of(job, "ps-0"), node_of(job, "worker-1")) == ("b", "b")
        assert sorted(job.losses) == ["ps-0", "worker-0"]
        if is_back:
            cluster.restore_node("a")
            job.wait_for_polls(8)
            assert job.pods("Running") == ["ps-0", "worker-1"]
            assert sorted(job.losses) == ["ps-0", "worker-0"]


def test_a_pod_on_a_node_that_answers_is_never_forced(
    emulated_cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something holds its object: it goes when that lets go of it, and its name is free only then."""
    cluster = emulated_cluster
    cluster.add_node("a", cpu="4")
    with sleeping_job(cluster, monkeypatch, workers=1, servers=1) as job:
        cluster.wait_for(lambda: job.pods("Running") == ["ps-0", "worker-0"], "pods that run")
        name, uid = pod_name(JOB, "ps-0"), job.pod("ps-0")["metadata"]["uid"]
        cluster.store.patch("pods", name, {"metadata": {"finalizers": ["example.com/held"]}})
        cluster.delete("pods", name)
        cluster.wait_for(lambda: job.losses == ["ps-0"], "its end")
        job.wait_for_polls(8)
        assert job.pod("ps-0")["metadata"]["uid"] == uid
        cluster.store.patch("pods", name, {"metadata": {"finalizers": None}})
        cluster.wait_for(
            lambda: "ps-0" in job.pods("Running") and job.pod("ps-0")["metadata"]["uid"] != uid,
            "its next life",
        )

"""What the job needs to run at all has room before anything else: on a cluster whose scheduler takes pods in any order."""

import pytest

from edlz.k8s.cluster.names import pod_name
from edlz.services.master.core.processes import places
from tests.k8s.cluster import TestCluster
from tests.k8s.nodes.scheduler import Order, newest_first, oldest_first
from tests.k8s.sleeping_job import JOB, sleeping_job

pytest.importorskip("aiohttp")
pytest.importorskip("kubernetes")

PART = "cpu=0.9,memory=64Mi"  # two fit on a node of two cores


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PATIENCE_S", 1.0)


@pytest.fixture
def two_nodes(emulated_cluster: TestCluster) -> TestCluster:
    for name in ("node-a", "node-b"):
        emulated_cluster.add_node(name, cpu="2")
    return emulated_cluster


def requests(cpu: str = PART) -> dict[str, str]:
    return {"worker_resource_request": cpu, "ps_resource_request": cpu}


@pytest.mark.parametrize("order", [newest_first, oldest_first])
def test_workers_do_not_win_the_race_for_the_room_of_servers(
    two_nodes: TestCluster, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    """As recorded: two servers and four workers of 900m on two nodes of two cores, all waiting at once."""
    two_nodes.control_plane.is_scheduling, two_nodes.control_plane.order = False, order
    with sleeping_job(two_nodes, monkeypatch, workers=4, servers=2, **requests()) as job:
        two_nodes.wait_for(lambda: {"ps-0", "ps-1"} <= set(job.pods("Pending")), "the servers' pods")
        job.wait_for_polls()
        two_nodes.control_plane.is_scheduling = True
        two_nodes.control_plane.wake()
        wanted = ["ps-0", "ps-1", "worker-0", "worker-1", "worker-2", "worker-3"]
        two_nodes.wait_for(lambda: job.pods() == wanted, "all the pods")
        two_nodes.wait_for(lambda: len(job.pods("Running")) == 4, "pods that run")
        assert job.pods("Running")[:2] == ["ps-0", "ps-1"]
        assert (job.losses, job.yielded) == ([], [])


@pytest.mark.fault
@pytest.mark.parametrize("is_told_before", [True, False])
def test_a_waiting_worker_does_not_keep_the_room_of_a_lost_server(
    two_nodes: TestCluster, monkeypatch: pytest.MonkeyPatch, is_told_before: bool
) -> None:
    with sleeping_job(two_nodes, monkeypatch, workers=4, servers=1, **requests()) as job:
        two_nodes.wait_for(lambda: len(job.pods("Running")) == 4, "pods that run")
        two_nodes.wait_for(lambda: len(job.pods("Pending")) == 1, "a worker that waits")
        assert "ps-0" in job.pods("Running")
        uid = job.pod("ps-0")["metadata"]["uid"]
        if is_told_before:
            two_nodes.delete("pods", pod_name(JOB, "ps-0"))
        else:
            two_nodes.kill_container(pod_name(JOB, "ps-0"))
        two_nodes.wait_for(
            lambda: "ps-0" in job.pods("Running") and job.pod("ps-0")["metadata"]["uid"] != uid,
            "the server's next life",
        )
        two_nodes.wait_for(lambda: len(job.pods("Running")) == 4, "no room is left empty")
        assert job.losses == ["ps-0"]
        assert len(job.yielded) <= 1


@pytest.mark.fault
def test_a_quota_that_workers_hold_is_given_back_to_a_server(
    two_nodes: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first creations of the server's service fail: workers could use the quota up meanwhile."""
    two_nodes.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}})
    two_nodes.api.faults.refuse(500, times=2, matches=_creates_a_service)
    with sleeping_job(two_nodes, monkeypatch, workers=2, servers=1, **requests()) as job:
        two_nodes.wait_for(lambda: len(job.pods("Running")) == 2, "pods that run")
        assert job.pods("Running")[0] == "ps-0"
        two_nodes.kill_container(pod_name(JOB, "ps-0"))
        two_nodes.wait_for(lambda: job.losses == ["ps-0"], "the loss")
        two_nodes.wait_for(lambda: "ps-0" in job.pods("Running"), "the server's next life")


def _creates_a_service(method: str, path: str) -> bool:
    return method == "POST" and path.partition("?")[0].endswith("/services")

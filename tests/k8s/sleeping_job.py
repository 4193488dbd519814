"""A job on an emulated cluster whose services only sleep: what should run is decided and done as always, and nothing is trained."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.names import Owner, labels, pod_name, selector
from edlz.k8s.objects.job_objects import JobObjects
from edlz.k8s.pods.log_folder import LogFolder
from edlz.k8s.pods.log_keeper import LogKeeper
from edlz.k8s.pods.pod_supervisor import PodSupervisor
from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.messages import Scaled, SupervisorOrders, SupervisorStatus
from tests.k8s.cluster import TestCluster

__all__ = ["JOB", "Sleeping", "SleepingJob", "sleeping_job"]

JOB = "j"


class Sleeping:
    """A cluster_spec under which every service sleeps, and goes soon when it is asked to."""

    command: tuple[str, ...] = ("sleep", "1000")
    grace_s = 1

    def pod(self, pod: Any, role: str) -> Any:
        pod.spec.containers[0].command = list(self.command)
        pod.spec.termination_grace_period_seconds = self.grace_s
        return pod

    def service(self, service: Any) -> Any:
        return service


class SleepingJob:
    """The master of a job, as its pod would run it.

    Attributes
    ----------
    desired : which pods should run
    told : the status that it was told last
    polls : how many there were
    losses, yielded : the workers and servers that were lost, the workers that made room
    """

    def __init__(self, cluster: TestCluster, config: JobConfig) -> None:
        self.cluster = cluster
        self.desired = DesiredProcesses(config.num_workers, config.num_ps_pods, relaunches=100)
        self.told = SupervisorStatus(seq=0)
        self.polls = 0
        self.losses: list[str] = []
        self.yielded: list[str] = []

    # -- what the loop asks

    def supervise(self, status: SupervisorStatus) -> SupervisorOrders:
        now = asyncio.get_running_loop().time()
        losses = self.desired.on_status(
            status.running, status.exits, None, now, placed=status.placed, crowded=status.crowded
        )
        self.losses += [loss.name for loss in losses]
        self.yielded += [name for name, _ in self.desired.take_yielded()]
        self.told, self.polls = status, self.polls + 1
        return SupervisorOrders(
            term=1,
            desired=self.desired.names(now),
            hung=tuple(self.desired.hung),
            waiting=self.desired.waiting(now),
        )

    def scale(self, workers: int) -> Scaled:
        raise AssertionError("nobody scales this job")

    def status(self) -> JobStatus:
        return JobStatus(name=JOB, state="Training", mode="sync", slots=1, started_at=0.0, now=0.0)

    def announce(self, kind: str, text: str) -> None:
        raise AssertionError(f"an event: {text}")

    # -- what tests ask

    def pods(self, phase: str = "") -> list[str]:
        """Return the names of the services whose pods are there, sorted."""
        found = self.cluster.list("pods", selector(JOB))
        names = (
            each["metadata"]["name"].removeprefix(pod_name(JOB, ""))
            for each in found
            if not phase or each["status"].get("phase") == phase
        )
        return sorted(name for name in names if name != "master")

    def pod(self, name: str) -> dict[str, Any]:
        found = self.cluster.find("pods", pod_name(JOB, name))
        assert found is not None, f"there is no {name}"
        return found

    def wait_for_polls(self, count: int = 4) -> None:
        """Wait until the loop has been round so many times."""
        before = self.polls
        self.cluster.wait_for(lambda: self.polls >= before + count, "the loop goes on")


@contextlib.contextmanager
def sleeping_job(
    cluster: TestCluster,
    monkeypatch: pytest.MonkeyPatch,
    *,
    workers: int,
    servers: int,
    master_node: str = "",
    **flags: Any,
) -> Iterator[SleepingJob]:
    """Lead a job from a thread of its own until the block ends."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    name = pod_name(JOB, "master")
    container = {"name": name, "image": cluster.image, "command": ["sleep", "1000"]}
    spec = {"containers": [container]} | ({"nodeName": master_node} if master_node else {})
    body = {"metadata": {"name": name, "labels": labels(JOB, "master")}, "spec": spec}
    owner = Owner(name, cluster.create("pods", body)["metadata"]["uid"])
    config = JobConfig(
        job_name=JOB,
        image_name=cluster.image,
        num_workers=workers,
        num_ps_pods=servers,
        transport_security="none",
        **flags,
    )
    job, ready = SleepingJob(cluster, config), threading.Event()
    ends: list[Any] = []

    async def lead() -> None:
        async with await Cluster.connect(config) as connection:
            objects = JobObjects(config, owner, "127.0.0.1:50001", Sleeping())
            logs = LogKeeper(connection, objects, LogFolder(cluster.kubeconfig.parent / "pods"))
            attending = asyncio.ensure_future(PodSupervisor(connection, objects, 1, logs).attend(job))
            ends.append((asyncio.get_running_loop(), attending))
            ready.set()
            with contextlib.suppress(asyncio.CancelledError):
                await attending

    thread = threading.Thread(target=lambda: asyncio.run(lead()), name="a sleeping job")
    thread.start()
    try:
        assert ready.wait(30), "the job does not begin"
        yield job
    finally:
        loop, attending = ends[0]
        loop.call_soon_threadsafe(attending.cancel)
        thread.join(30)
        assert not thread.is_alive()

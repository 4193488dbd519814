"""The supervision of pods against an API server that breaks: whatever it does, the job gets its pods, none twice."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.names import STATUS, STOP, WORKERS, Owner, labels, pod_name
from edlz.k8s.objects.job_objects import JobObjects
from edlz.k8s.pods.log_folder import LogFolder
from edlz.k8s.pods.log_keeper import LogKeeper
from edlz.k8s.pods.pod_supervisor import PodSupervisor
from edlz.services.configuration.job_config import JobConfig
from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.messages import Scaled, SupervisorOrders, SupervisorStatus
from edlz.services.supervision.launcher import is_worker
from tests.k8s.server.api_server import ApiServer

pytestmark = pytest.mark.fault

JOB = "j"
LIMIT_S = 90.0


class Master:
    """Decides as the master service does, with the core of desired processes."""

    def __init__(self) -> None:
        self.desired = DesiredProcesses(workers=3, servers=1, relaunches=100)
        self.told = SupervisorStatus(seq=0)
        self.losses: list[str] = []
        self.events: list[str] = []
        self.is_over = False
        self.polls = 0

    def supervise(self, status: SupervisorStatus) -> SupervisorOrders:
        now = asyncio.get_running_loop().time()
        self.polls += 1
        self.told = status
        self.losses += [
            loss.name for loss in self.desired.on_status(status.running, status.exits, status.room, now)
        ]
        self.desired.check_invariants()
        return SupervisorOrders(term=1, desired=self.desired.names(now), stop=self.is_over)

    def scale(self, workers: int) -> Scaled:
        before = self.desired.scale(workers, asyncio.get_running_loop().time())
        return Scaled(before=before, after=workers)

    def status(self) -> JobStatus:
        state = "Succeeded" if self.is_over else "Training"
        return JobStatus(name=JOB, state=state, mode="sync", slots=1, started_at=0.0, now=float(self.polls))

    def announce(self, kind: str, text: str) -> None:
        self.events.append(text)


class AsIs:
    """A cluster that wants nothing of its own."""

    def pod(self, pod: Any, role: str) -> Any:
        return pod

    def service(self, service: Any) -> Any:
        return service


class Scene:
    """An API server with a job's master pod, and somebody who runs and kills pods."""

    def __init__(self, server: ApiServer, master: Master, loop: PodSupervisor, owner: Owner) -> None:
        self.server, self.master, self.loop, self.owner = server, master, loop, owner
        self.created: Counter[str] = Counter()
        self.killed: list[str] = []
        self._random = random.Random(5)
        server.store.subscribe(self._on_change)

    def _on_change(self, change: Any) -> None:
        if (change.resource, change.kind) == ("pods", "ADDED"):
            self.created[change.after["metadata"]["name"]] += 1

    def pods(self, phase: str = "") -> list[str]:
        """The names of the services whose pods are there."""
        found = self.server.store.list("pods", "default", labels=f"elasticdl-job-name={JOB}")
        return [
            each["metadata"]["name"].removeprefix(f"elasticdl-{JOB}-")
            for each in found
            if each["metadata"]["name"] != self.owner.name
            and (not phase or each["status"].get("phase") == phase)
        ]

    def run_all(self) -> None:
        """Let all pods run that wait."""
        for name in self.pods("Pending"):
            self._set(name, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})

    def kill(self, name: str, *, is_deleted: bool = False) -> None:
        self.killed.append(name)
        if is_deleted:
            self.server.store.delete("pods", pod_name(JOB, name), grace_s=0)
            return
        ended = {"exitCode": 143, "reason": "Error", "startedAt": None, "finishedAt": None}
        self._set(name, "Failed", {"terminated": ended})

    def kill_some(self) -> None:
        """Let one worker fail and another vanish."""
        workers = [name for name in self.pods("Running") if is_worker(name)]
        for is_deleted, name in enumerate(self._random.sample(workers, min(2, len(workers)))):
            self.kill(name, is_deleted=bool(is_deleted))

    def _set(self, name: str, phase: str, state: dict[str, Any]) -> None:
        container = {"name": pod_name(JOB, name), "state": state, "ready": phase == "Running"}
        container |= {"restartCount": 0, "image": "i", "imageID": ""}
        status = {"phase": phase, "containerStatuses": [container]}
        self.server.store.patch("pods", pod_name(JOB, name), {"status": status}, subresource="status")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await asyncio.to_thread(self.run_all)
                await asyncio.sleep(0.02)

    def has_converged(self) -> bool:
        """Whether what runs is what should, and the master knows what was lost."""
        now = asyncio.get_running_loop().time()
        desired = set(self.master.desired.names(now))
        return (
            len([name for name in desired if is_worker(name)]) == self.master.desired.target
            and set(self.pods("Running")) == desired == set(self.master.told.running)
            and sorted(self.master.losses) == sorted(self.killed)
        )

    def check(self) -> None:
        """No worker's pod was made twice, a server's once for each of its lives; no more than were lost."""
        workers = {name: count for name, count in self.created.items() if "-worker-" in name}
        assert set(workers.values()) == {1}, workers
        assert self.created[pod_name(JOB, "ps-0")] == 1 + self.killed.count("ps-0")
        lost = [name for name in self.killed if is_worker(name)]
        assert len(workers) == self.master.desired.target + len(lost), (workers, lost)


@asynccontextmanager
async def scene(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    async with ApiServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(folder / "kubeconfig")))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        name = pod_name(JOB, "master")
        master_pod = {
            "metadata": {"name": name, "labels": labels(JOB, "master")},
            "spec": {"containers": [{"name": name, "image": "i"}]},
        }
        uid = server.store.create("pods", master_pod)["metadata"]["uid"]
        config = JobConfig(job_name=JOB, image_name="i", num_workers=3, transport_security="none")
        async with await Cluster.connect(config) as cluster:
            owner = Owner(name, uid)
            objects = JobObjects(config, owner, "127.0.0.1:50001", AsIs())
            logs = LogKeeper(cluster, objects, LogFolder(folder / "pods"))
            master, loop = Master(), PodSupervisor(cluster, objects, 1, logs)
            made = Scene(server, master, loop, owner)
            async with asyncio.TaskGroup() as tasks:
                attending = tasks.create_task(loop.attend(master), name="attend")
                yield made
                attending.cancel()


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Scene], Any]], None]:
    monkeypatch.setattr("edlz.services.supervision.backoff.SHORT_LIFE_S", 0.0)  # no life here is long

    def run(act: Callable[[Scene], Any]) -> None:
        async def main() -> None:
            async with scene(tmp_path, monkeypatch) as made:
                await act(made)

        asyncio.run(main())

    return run


def drop_often(server: ApiServer) -> None:
    server.faults.watch_life_s = 1.0


def expire_always(server: ApiServer) -> None:
    server.faults.is_expired = True


def double_and_shuffle(server: ApiServer) -> None:
    server.faults.doubles_events = True
    server.faults.shuffle_seed = 3


def refuse_often(server: ApiServer) -> None:
    server.faults.refuse(500, share=0.3, seed=1)
    server.faults.refuse(429, share=0.2, seed=2)


def everything(server: ApiServer) -> None:
    drop_often(server)
    double_and_shuffle(server)
    refuse_often(server)


def nothing(server: ApiServer) -> None:
    pass


@pytest.mark.parametrize(
    "fault", [nothing, drop_often, expire_always, double_and_shuffle, refuse_often, everything]
)
def test_the_pods_converge_and_no_pod_comes_twice(play, fault: Callable[[ApiServer], None]) -> None:
    async def act(scene: Scene) -> None:
        fault(scene.server)
        await scene.until(scene.has_converged)
        for _ in range(3):
            scene.kill_some()
            await scene.until(scene.has_converged)
        scene.kill("ps-0")
        await scene.until(scene.has_converged)
        scene.check()

    play(act)


def test_a_server_that_was_down_while_pods_died_is_caught_up_with(play) -> None:
    async def act(scene: Scene) -> None:
        await scene.until(scene.has_converged)
        await asyncio.to_thread(scene.server.down)
        await scene.until(lambda: scene.loop.trouble != "")
        scene.kill_some()
        polls = scene.master.polls
        await scene.until(lambda: scene.master.polls > polls + 20)  # nobody waits for the server
        assert scene.master.losses == []
        await asyncio.to_thread(scene.server.up)
        await scene.until(scene.has_converged)
        scene.check()

    play(act)


def test_annotations_are_obeyed_also_those_of_before(play) -> None:
    async def act(scene: Scene) -> None:
        patch = {"metadata": {"annotations": {WORKERS: "5"}}}
        scene.server.store.patch("pods", scene.owner.name, patch)
        await scene.until(lambda: scene.has_converged() and scene.master.desired.target == 5)
        scene.server.store.patch("pods", scene.owner.name, {"metadata": {"annotations": {WORKERS: "2"}}})
        await scene.until(lambda: scene.master.desired.target == 2 and len(scene.pods("Running")) == 3)
        scene.server.store.patch("pods", scene.owner.name, {"metadata": {"annotations": {WORKERS: "x"}}})
        await scene.until(lambda: bool(scene.master.events))
        scene.server.store.patch("pods", scene.owner.name, {"metadata": {"annotations": {STOP: "save"}}})
        await scene.until(lambda: scene.master.told.stop)
        assert scene.master.losses == []

    play(act)


def test_the_status_is_on_the_master_pod(play) -> None:
    async def act(scene: Scene) -> None:
        def written() -> bool:
            found = scene.server.store.get("pods", scene.owner.name)["metadata"]
            return found["labels"].get("status") == "Running" and STATUS in found.get("annotations", {})

        await scene.until(written)

    play(act)


def test_the_end_leaves_the_master_pod_alone(play) -> None:
    async def act(scene: Scene) -> None:
        await scene.until(scene.has_converged)
        scene.kill("worker-1")  # its pod is kept for its log
        await scene.until(scene.has_converged)
        order: list[str] = []
        scene.server.store.subscribe(
            lambda change: (
                order.append(change.after["metadata"]["name"])
                if (change.resource, change.kind) == ("pods", "DELETED")
                else None
            )
        )
        scene.master.is_over = True
        await scene.loop.end(servers=1)
        assert [each["metadata"]["name"] for each in scene.server.store.list("pods")] == [scene.owner.name]
        assert scene.server.store.list("services", "default", labels=f"elasticdl-job-name={JOB}") == []
        roles = [name.removeprefix("elasticdl-j-").partition("-")[0] for name in order]
        assert roles == sorted(roles, key=["worker", "ps"].index)
        assert scene.server.store.find("secrets", "elasticdl-j-keys") is None

    play(act)


def test_a_master_that_comes_back_adopts_what_runs(play, monkeypatch) -> None:
    async def act(scene: Scene) -> None:
        await scene.until(scene.has_converged)
        scene.check()
        again = Master()
        again.desired = DesiredProcesses(workers=3, servers=1, record=scene.master.desired.record)
        other = PodSupervisor(scene.loop._cluster, scene.loop._objects, 10**9, scene.loop._logs)
        async with asyncio.TaskGroup() as tasks:
            attending = tasks.create_task(other.attend(again), name="attend")
            async with asyncio.timeout(LIMIT_S):
                while again.polls < 5:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert set(again.told.running) == {"ps-0", "worker-0", "worker-1", "worker-2"}
            attending.cancel()
        scene.check()

    play(act)

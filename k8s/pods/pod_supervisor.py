"""The supervisor of a job whose services are pods: the rounds of `Supervision`, made in the master's process.

So telling the master takes no time and cannot fail.  Whatever it asks of the cluster is done beside it, and a cluster that
does not answer keeps nobody from training.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import told
from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.cluster.master_trouble import UNTOLD
from edlz.k8s.pods.commands import Commands
from edlz.k8s.pods.launcher import PodLauncher
from edlz.k8s.pods.log_keeper import LogKeeper
from edlz.k8s.pods.pod_inventory import PodInventory
from edlz.k8s.pods.pod_watch import PodWatch
from edlz.k8s.pods.status_note import StatusNote, write_note
from edlz.services.errors import EdlzError
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.messages import Scaled, SupervisorOrders, SupervisorStatus
from edlz.services.supervision.loop import Supervision

if TYPE_CHECKING:  # it needs the kubernetes package
    from edlz.k8s.objects.job_objects import JobObjects

__all__ = ["Master", "PodSupervisor"]

STATUS_S = 0.25  # between two looks at the status
END_GRACE_S = 5.0  # at the job's end, when all have heard of it and left
END_S = 45.0  # for the pods to go
LAST_LOGS_S = 5.0  # for the logs of those that went last

logger = logging.getLogger(__name__)


class Master(Protocol):
    """What the loop asks of the master: a MasterService."""

    def supervise(self, status: SupervisorStatus) -> SupervisorOrders | None: ...

    def scale(self, workers: int) -> Scaled | None: ...

    def status(self) -> JobStatus: ...

    def announce(self, kind: str, text: str) -> None: ...


class PodSupervisor:
    """Runs the services of one job as pods.

    Parameters
    ----------
    cluster, objects : Cluster, JobObjects
        Where they run, and what is created.
    launch : int
        Number of the first start; greater than any that an earlier life of the master has told.
    logs : LogKeeper
        Keeps what pods have printed.

    Attributes
    ----------
    is_stopping : bool
        The job is to save a checkpoint and end.
    annotations : mapping
        Of the master pod, as they are known.
    changed : set when something of a pod has changed
    """

    def __init__(self, cluster: Cluster, objects: "JobObjects", launch: int, logs: LogKeeper) -> None:
        self._cluster, self._objects, self._logs = cluster, objects, logs
        self._inventory = PodInventory(objects.owner.uid, objects.pod_name(""), launch)
        self._watch = PodWatch(cluster, objects.selector, self._inventory, self._on_change)
        self._note = StatusNote()
        self._revision = 0  # of the annotations
        self.changed = asyncio.Event()
        self.annotations: Mapping[str, str] = {}
        self.is_stopping = False

    @property
    def is_complete(self) -> bool:
        """Whether it is known what runs: before that, it would be started again."""
        return self._inventory.is_complete

    @property
    def trouble(self) -> str:
        """Why the cluster is out of sight; nothing if it is not."""
        return self._watch.trouble

    async def attend(self, master: Master) -> None:
        """Follow the master's orders until the job is over and everybody has heard of it, or cancelled."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch.run(), name="watch the pods")
            writing = tasks.create_task(self._write_status(master), name="write the status")
            keeping = tasks.create_task(self._logs.run(), name="keep logs of pods")
            await self._follow(master, self._launcher(tasks))
            for task in (watching, writing, keeping):
                task.cancel()

    async def _follow(self, master: Master, launcher: PodLauncher) -> None:
        rounds = Supervision(launcher)
        await rounds.run(_MasterPod(self, master, launcher, rounds))

    async def end(self, servers: int) -> None:
        """Delete what was made for the job, in order: workers, parameter servers, services, the secret.

        What cannot be deleted now goes when the master pod is deleted, which owns it.
        """
        try:
            async with asyncio.timeout(END_S), asyncio.TaskGroup() as tasks:
                launcher = self._launcher(tasks)
                self.changed.clear()
                watching = tasks.create_task(self._watch.run(), name="watch the pods")
                keeping = tasks.create_task(self._logs.run(), name="keep logs of pods")
                await self.changed.wait()  # what there is now
                for role in ("worker", "ps"):
                    await launcher.delete_all(role, END_GRACE_S)
                await self._logs.settle(LAST_LOGS_S)
                watching.cancel()
                keeping.cancel()
                await self._delete_others(servers)
        except TimeoutError:
            logger.warning("some of the job's pods are still there; they go with the master pod")

    async def _delete_others(self, servers: int) -> None:
        objects = self._objects
        others = [("Service", objects.service_name(f"ps-{index}")) for index in range(servers)]
        others.append(("Secret", objects.secret_name))
        for kind, name in others:
            try:
                await self._cluster.delete(kind, name)
            except EdlzError as error:
                logger.warning("the %s %s goes with the master pod: %s", kind.lower(), name, told(error))

    def _launcher(self, tasks: asyncio.TaskGroup) -> PodLauncher:
        return PodLauncher(self._cluster, self._objects, self._inventory, tasks, self.changed, self._logs)

    def _on_change(self, pods: tuple[Pod, ...]) -> None:
        for pod in pods:
            if pod.uid == self._objects.owner.uid:
                self._see_annotations(pod)
        self._logs.see(pods)
        self.changed.set()

    def _see_annotations(self, pod: Pod) -> None:
        """Take the annotations of the master pod, unless they are older than those that are known.

        Kubernetes lets the revisions of one object be compared as numbers (since 1.35 it promises so).
        """
        revision = pod.metadata.resource_version
        if revision.isdecimal():
            if int(revision) < self._revision:
                return
            self._revision = int(revision)
        self.annotations = pod.annotations

    async def _write_status(self, master: Master) -> None:
        """Write the status on the master pod whenever it is due, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            status = master.status()
            note = self._note.due(status, loop.time())
            if note is not None:
                try:
                    await write_note(self._cluster, self._objects.owner, note, patience_s=0)
                except EdlzError as error:
                    logger.warning("%s: %s", UNTOLD, told(error))
                    await asyncio.sleep(1.0)
                else:
                    self._note.on_written(status, loop.time())
            await asyncio.sleep(STATUS_S)


class _MasterPod:
    """The home of a job on a cluster; see `Home`.

    Parameters
    ----------
    loop, master : PodSupervisor, Master
        Whose pods they are, and who says what should run.
    launcher, rounds : PodLauncher, Supervision
        Who starts and ends them.
    """

    def __init__(
        self, loop: PodSupervisor, master: Master, launcher: PodLauncher, rounds: Supervision
    ) -> None:
        self._loop, self._master, self._launcher, self._rounds = loop, master, launcher, rounds
        self._commands = Commands()
        self._has_adopted = False  # what ran before
        self.is_over = False

    @property
    def changes(self) -> Sequence[asyncio.Event]:
        return (self._loop.changed,)

    async def begin_round(self) -> bool:
        self._loop.changed.clear()
        if not self._loop.is_complete:
            return False
        if not self._has_adopted:
            self._has_adopted = True
            self._launcher.adopt()
        if self._loop.is_stopping:
            self._rounds.stop()
        return True

    async def ask(self, status: SupervisorStatus) -> SupervisorOrders | None:
        orders = self._master.supervise(status)
        if orders is None or not orders.stop:
            return orders
        self.is_over = True  # `PodSupervisor.end` deletes in order
        return None

    def end_round(self) -> None:
        """Do what the annotations of the master pod ask for."""
        self._launcher.tidy()
        asked = self._commands.on_annotations(self._loop.annotations)
        for complaint in asked.complaints:
            self._master.announce("job", complaint)
        if asked.is_stopping and not self._loop.is_stopping:
            self._loop.is_stopping = True
            logger.info("the job is asked to stop")
        if asked.workers is not None:
            self._scale(asked.workers)

    def _scale(self, workers: int) -> None:
        try:
            scaled = self._master.scale(workers)
        except EdlzError as error:
            self._master.announce("workers", told(error))
            return
        if scaled is not None and scaled.warning:
            self._master.announce("workers", scaled.warning)

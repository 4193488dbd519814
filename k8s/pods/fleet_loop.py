"""The fleet loop: four times a second it tells the master what runs and has ended, and makes the answer true.

It lives in the master's process, so telling takes no time and cannot fail.  Whatever it asks of the cluster is
done beside it, and a cluster that does not answer keeps nobody from training.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Protocol

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import told
from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.cluster.master_trouble import UNTOLD
from edlz.k8s.objects.job_objects import JobObjects
from edlz.k8s.pods.commands import Commands
from edlz.k8s.pods.launcher import PodLauncher
from edlz.k8s.pods.pod_inventory import PodInventory
from edlz.k8s.pods.pod_watch import PodWatch
from edlz.k8s.pods.status_note import StatusNote, write_note
from edlz.services.errors import EdlzError
from edlz.services.protocol.job_status import JobStatus
from edlz.services.protocol.messages import Scaled, SupervisorOrders, SupervisorStatus
from edlz.services.supervision.launcher import Facts, count_workers
from edlz.services.supervision.reconciler import Reconciler

__all__ = ["FleetLoop", "Master"]

POLL_S = 0.25
STOP_GRACE_S = 10.0  # a worker that is not wanted any more
HUNG_GRACE_S = 30.0  # it writes down where it is, if it still can
END_GRACE_S = 5.0  # at the job's end, when all have heard of it and left
END_S = 45.0  # for the pods to go

logger = logging.getLogger(__name__)


class Master(Protocol):
    """What the loop asks of the master: a MasterService."""

    def supervise(self, status: SupervisorStatus) -> SupervisorOrders | None: ...

    def scale(self, workers: int) -> Scaled | None: ...

    def status(self) -> JobStatus: ...

    def announce(self, kind: str, text: str) -> None: ...


class FleetLoop:
    """Runs the services of one job as pods.

    Parameters
    ----------
    cluster, objects : where they run, and what is created
    launch : number of the first start; greater than any that an earlier life of the master has told

    Attributes
    ----------
    is_stopping : the job is to save a checkpoint and end
    """

    def __init__(self, cluster: Cluster, objects: JobObjects, launch: int) -> None:
        self._cluster, self._objects = cluster, objects
        self._inventory = PodInventory(objects.owner.uid, objects.pod_name(""), launch)
        self._watch = PodWatch(cluster, objects.selector, self._inventory, self._on_change)
        self._core, self._commands, self._note = Reconciler(), Commands(), StatusNote()
        self._changed = asyncio.Event()
        self._annotations: Mapping[str, str] = {}
        self._revision = 0  # of those annotations
        self._has_adopted = False  # what ran before
        self.is_stopping = False

    @property
    def trouble(self) -> str:
        """Why the cluster is out of sight; nothing if it is not."""
        return self._watch.trouble

    async def attend(self, master: Master) -> None:
        """Follow the master's orders until the job is over and everybody has heard of it, or cancelled."""
        async with asyncio.TaskGroup() as tasks:
            launcher = self._launcher(tasks)
            watching = tasks.create_task(self._watch.run(), name="watch the pods")
            writing = tasks.create_task(self._write_status(master), name="write the status")
            while not self._poll(master, launcher):
                await self._pause()
            watching.cancel()
            writing.cancel()

    async def end(self, servers: int) -> None:
        """Delete what was made for the job, in order: workers, parameter servers, services, the secret.

        What cannot be deleted now goes when the master pod is deleted, which owns it.
        """
        try:
            async with asyncio.timeout(END_S), asyncio.TaskGroup() as tasks:
                launcher = self._launcher(tasks)
                self._changed.clear()
                watching = tasks.create_task(self._watch.run(), name="watch the pods")
                await self._changed.wait()  # what there is now
                for role in ("worker", "ps"):
                    await launcher.delete_all(role, END_GRACE_S)
                watching.cancel()
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

    # -- the loop

    def _poll(self, master: Master, launcher: PodLauncher) -> bool:
        """Tell the master what is, and begin what it orders; return whether the job is over."""
        if not self._inventory.is_complete:  # what runs already would be started again
            return False
        if not self._has_adopted:
            self._has_adopted = True
            launcher.adopt()
        self._core.on_exits(launcher.take_exits())
        self._core.is_stopping = self.is_stopping
        unreachable = self._inventory.unreachable()
        facts = Facts(
            placed=self._inventory.placed(),
            crowded=launcher.crowded(),
            unreachable=unreachable,
            notes=launcher.notes(),
        )
        orders = master.supervise(self._core.next_status(launcher.running(), facts))
        if orders is None:
            return False
        if orders.stop:  # `end` deletes in order
            return True
        action = self._core.on_orders(orders, launcher.running())
        launcher.workers = max(1, count_workers(orders.desired) + orders.waiting)
        launcher.forget_all_but(orders.desired)
        for name in action.launch:
            launcher.begin_launch(name)
        for name in action.stop:
            launcher.begin_stop(name, STOP_GRACE_S)
        for name in action.abort:
            launcher.begin_stop(name, STOP_GRACE_S if name in unreachable else HUNG_GRACE_S)
        launcher.tidy()
        self._obey(master)
        return False

    def _obey(self, master: Master) -> None:
        """Do what the annotations of the master pod ask for."""
        asked = self._commands.on_annotations(self._annotations)
        for complaint in asked.complaints:
            master.announce("job", complaint)
        if asked.is_stopping and not self.is_stopping:
            self.is_stopping = True
            logger.info("the job is asked to stop")
        if asked.workers is not None:
            try:
                scaled = master.scale(asked.workers)
            except EdlzError as error:
                master.announce("workers", told(error))
            else:
                if scaled is not None and scaled.warning:
                    master.announce("workers", scaled.warning)

    def _launcher(self, tasks: asyncio.TaskGroup) -> PodLauncher:
        return PodLauncher(self._cluster, self._objects, self._inventory, tasks, self._changed)

    def _on_change(self, pods: tuple[Pod, ...]) -> None:
        for pod in pods:
            if pod.uid == self._objects.owner.uid:
                self._see_annotations(pod)
        self._changed.set()

    def _see_annotations(self, pod: Pod) -> None:
        """Take the annotations of the master pod, unless they are older than those that are known.

        Kubernetes lets the revisions of one object be compared as numbers (since 1.35 it promises so).
        """
        revision = pod.metadata.resource_version
        if revision.isdecimal():
            if int(revision) < self._revision:
                return
            self._revision = int(revision)
        self._annotations = pod.annotations

    async def _pause(self) -> None:
        """Wait for the next round: a change is taken in at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._changed.wait()
        self._changed.clear()

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
            await asyncio.sleep(POLL_S)

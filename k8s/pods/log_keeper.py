"""Keeps the last lines of a job's pods when they end or are asked to go: a cluster forgets a pod's log with the pod.

Theory of operation.  A pod that has ended is read at once, and not deleted before it was, for a moment.  One that was asked to
go is followed to its end: preempted and drained pods have some seconds for that.  What a pod says before it is killed with
its node is lost; how it ended is kept all the same.  No log is worth a service: reading is bounded in time and number, and
whatever goes wrong costs a warning.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from edlz.k8s.cluster.api_errors import AlreadyExists, NotFound, NotPermitted, told
from edlz.k8s.cluster.api_records import Metadata, Pod
from edlz.k8s.pods.log_folder import MOST_LOGS, LogFolder
from edlz.k8s.pods.pod_exits import exit_of, has_ended, is_out_of_reach, vanished
from edlz.k8s.pods.pod_log import LINES, PodLog
from edlz.services.errors import EdlzError

if TYPE_CHECKING:  # it needs the kubernetes package
    from edlz.k8s.objects.job_objects import JobObjects

__all__ = ["LogKeeper", "LogSource"]

READ_S = 5.0  # for the log of a pod that has ended
GOING_S = 35.0  # for that of one which was asked to go: the usual grace, and some more
HOLD_S = 2.0  # that a pod which has ended is not deleted because its log is read
END_S = 1.0  # for how a pod ended to be heard of, once its log is over
AT_ONCE = 16
_REMEMBERED = 10_000  # uids of pods whose logs are kept

logger = logging.getLogger(__name__)


class LogSource(Protocol):
    """What is asked of a cluster."""

    async def get_pod(self, name: str) -> Pod: ...

    def pod_log(
        self, name: str, *, tail_lines: int | None = None, follow: bool = False, timestamps: bool = False
    ) -> AsyncIterator[str]: ...

    async def create(self, obj: Any, *, patience_s: float | None = None) -> Metadata: ...

    async def delete(self, kind: str, name: str, *, patience_s: float | None = None) -> bool: ...


class LogKeeper:
    """Keeps logs in a folder, and as objects of the cluster, from which commands read them.

    Parameters
    ----------
    cluster, objects : LogSource, JobObjects
        Where pods are, and what they are called.
    folder : LogFolder
        In the job's folder.
    """

    def __init__(self, cluster: LogSource, objects: "JobObjects", folder: LogFolder) -> None:
        self._cluster, self._objects, self._folder = cluster, objects, folder
        self._waiting: dict[str, Pod] = {}  # by uid, the newest last: their logs are to be read
        self._under_way: dict[str, Pod] = {}  # by uid: as they were seen last
        self._kept: dict[str, None] = {}  # uids, the newest last
        self._changed = asyncio.Event()  # there may be something to keep
        self._news = asyncio.Event()  # for those who wait
        self._warned: set[str] = set()
        self._may_publish = True

    def see(self, pods: Iterable[Pod]) -> None:
        """Take pods as they are now; another master's are none of ours."""
        for pod in pods:
            uid = pod.uid
            if self._objects.owner.uid not in pod.owner_uids or uid in self._kept:
                continue
            if uid in self._under_way:
                self._under_way[uid] = pod
            elif has_ended(pod) or pod.is_deleted:
                self._waiting[uid] = pod
                if len(self._waiting) > MOST_LOGS:  # so many would be thrown away again
                    self._note_kept(next(iter(self._waiting)))
        self._changed.set()
        self._news.set()

    async def run(self) -> None:
        """Keep logs until cancelled."""
        slots = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish_earlier(), name="publish logs of before")
            while True:
                await self._changed.wait()
                self._changed.clear()
                while self._waiting:
                    await slots.acquire()
                    uid, pod = self._waiting.popitem()
                    self._under_way[uid] = pod
                    tasks.create_task(self._keep(uid, slots), name=f"keep the log of {pod.name}")

    async def hold(self, uid: str) -> None:
        """Return when a pod may be deleted: one that has ended as soon as its log is kept, or has taken too long."""

        def may_go() -> bool:
            pod = self._under_way.get(uid) or self._waiting.get(uid)
            return uid in self._kept or pod is None or not has_ended(pod) or is_out_of_reach(pod)

        await self._until(may_go, HOLD_S)

    async def settle(self, limit_s: float) -> None:
        """Return when all logs are kept, after `limit_s` at most."""
        await self._until(lambda: not self._waiting and not self._under_way, limit_s)

    async def _until(self, is_so: Callable[[], bool], limit_s: float) -> None:
        """Return when something is so, after `limit_s` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not is_so():
                    self._news.clear()
                    await self._news.wait()

    # -- one log

    async def _keep(self, uid: str, slots: asyncio.Semaphore) -> None:
        try:
            lines = await self._read(self._under_way[uid])
            await self._until(lambda: has_ended(self._under_way[uid]), END_S)
            pod = self._under_way[uid]
            name = pod.name.removeprefix(self._objects.pod_name(""))
            end = exit_of(pod, name, 0) or vanished(pod, name, 0)
            log = PodLog.of(name, uid, time.time(), lines, end.reason)
            gone = await asyncio.to_thread(self._folder.keep, log)
            self._note_kept(uid)  # whoever waits to delete the pod need not wait for the object
            await self._publish(log)
            await self._withdraw(gone)
        except OSError as error:
            self._note_kept(uid)
            self._warn(f"the logs of pods cannot be kept: {error}")
        except asyncio.CancelledError:
            if uid not in self._kept:  # there is another turn, when all pods are deleted
                self._waiting[uid] = self._under_way[uid]
            raise
        finally:
            del self._under_way[uid]
            self._news.set()
            slots.release()

    def _note_kept(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._kept[uid] = None
        self._news.set()
        if len(self._kept) > _REMEMBERED:
            del self._kept[next(iter(self._kept))]

    async def _read(self, pod: Pod) -> deque[str]:
        """Return the last lines of a pod, of one that goes up to its end; those that came, if that takes too long."""
        lines: deque[str] = deque(maxlen=LINES)
        is_over = has_ended(pod)
        if is_out_of_reach(pod):  # its node hands nothing out
            return lines
        with suppress(TimeoutError, NotFound):
            async with asyncio.timeout(READ_S if is_over else GOING_S):
                try:
                    if (await self._cluster.get_pod(pod.name)).uid != pod.uid:  # it is gone, its name taken
                        return lines
                    log = self._cluster.pod_log(
                        pod.name, tail_lines=LINES, follow=not is_over, timestamps=True
                    )
                    async for line in log:
                        lines.append(line)
                except NotPermitted as error:
                    self._warn(f"the logs of pods cannot be read: {told(error)}")
                except EdlzError as error:
                    logger.debug(
                        "the log of %s: %s", pod.name, told(error)
                    )  # it never began, or its node left
        return lines

    # -- objects

    async def _publish_earlier(self) -> None:
        """Make objects of what is in the folder: another master, which had it before, took its own with it."""
        await self._publish(*await asyncio.to_thread(self._folder.logs))

    async def _publish(self, *logs: PodLog) -> None:
        owner = self._objects.owner
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid}
        for log in logs:
            if not self._may_publish:
                return
            try:
                made = log.config_map(
                    self._objects.job_name, self._objects.pod_name(log.short_name), reference
                )
                await self._cluster.create(made, patience_s=0)
            except AlreadyExists:
                pass  # by an earlier life of this master
            except NotPermitted as error:
                self._may_publish = False
                self._warn(f"the logs of pods that are gone stay in the job's folder: {told(error)}")
            except EdlzError as error:
                self._warn(f"the log of a pod stays in the job's folder: {told(error)}")

    async def _withdraw(self, logs: Iterable[PodLog]) -> None:
        for log in logs:
            with suppress(EdlzError):  # it goes with the master's pod
                await self._cluster.delete("ConfigMap", self._objects.pod_name(log.short_name), patience_s=0)

    def _warn(self, text: str) -> None:
        """Warn, once of each thing."""
        if text not in self._warned:
            self._warned.add(text)
            logger.warning("%s", text)

"""The launcher that runs the services of a job as pods.

It holds what should be done next to each name, does it beside the rounds of `PodSupervisor`, and takes a refusal as something
that may pass: a creation or deletion that fails is tried again later, and shown as the service's note meanwhile.
No name is ever created while a pod holds it: what the inventory does not know, the server does (AlreadyExists),
and a pod that turns out to be ours is taken for the one that was to be created.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from edlz.k8s.cluster.api_errors import AlreadyExists, Conflict, NotFound, is_quota_used_up, told
from edlz.k8s.cluster.api_records import Metadata, Pod
from edlz.k8s.flags.resources import number_of
from edlz.k8s.pods.pod_inventory import PodInventory
from edlz.k8s.pods.stuck_pods import StuckPods
from edlz.services.errors import EdlzError, PeerUnavailable
from edlz.services.protocol.messages import ProcessExit
from edlz.services.supervision.backoff import Pauses
from edlz.services.supervision.launcher import HUNG_GRACE_S, Facts, count_workers, is_worker, split_name

if TYPE_CHECKING:  # it needs the kubernetes package
    from edlz.k8s.objects.job_objects import JobObjects

__all__ = ["PodApi", "PodLauncher", "PodLogs"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
LONGEST_OUTAGE_PAUSE_S = 4.0  # a server that is only busy, or down, is asked sooner than one that refuses
AT_ONCE = 8  # requests under way
DELETE_AGAIN_S = 30.0  # beyond its grace, a pod that is still there is asked once more to go
GONE_POLL_S = 0.25
STOP_GRACE_S = 10.0  # of a service that is not wanted any more

logger = logging.getLogger(__name__)


class PodApi(Protocol):
    """What the launcher asks of a cluster."""

    async def create(self, obj: Any, *, patience_s: float | None = None) -> Metadata: ...

    async def get(self, kind: str, name: str) -> dict[str, Any]: ...

    async def get_pod(self, name: str) -> Pod: ...

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        grace_s: float | None = None,
        uid: str = "",
        patience_s: float | None = None,
    ) -> bool: ...


class PodLogs(Protocol):
    """Who reads the logs of pods before they are gone: a LogKeeper."""

    async def hold(self, uid: str) -> None: ...


@dataclass(slots=True)
class _Trial:
    """How creating a pod has gone so far.

    Attributes
    ----------
    not_before_s : float
        When to try again.
    pauses : Pauses
        How long to wait after the next failures.
    note : str
        Why it failed.
    is_crowded : bool
        Whether a quota is used up.
    """

    not_before_s: float = 0.0
    pauses: Pauses = field(default_factory=lambda: Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    note: str = ""
    is_crowded: bool = False


@dataclass(slots=True)
class PodLauncher:
    """Launches services as pods.  Its methods take no time: they begin what `tasks` finish.

    Parameters
    ----------
    api : PodApi
        The cluster.
    objects : JobObjects
        What is created.
    inventory : PodInventory
        Which pods there are; somebody else keeps it true.
    tasks : asyncio.TaskGroup
        Where requests are made.
    changed : set when something has begun or ended
    logs : PodLogs, optional
        Whom a deletion waits for, shortly.

    Attributes
    ----------
    workers : int
        How many workers are wanted.
    """

    api: PodApi
    objects: "JobObjects"
    inventory: PodInventory
    tasks: asyncio.TaskGroup
    changed: asyncio.Event
    logs: PodLogs | None = None
    workers: int = 1
    _busy: set[str] = field(default_factory=set)  # names, uids: a request about them is under way
    _trials: dict[str, _Trial] = field(default_factory=dict)  # of names that could not be created
    _asked_to_go: dict[str, tuple[float, float]] = field(
        default_factory=dict
    )  # uid -> grace, when to ask again
    _served: set[str] = field(default_factory=set)  # parameter servers that have a service before them
    _strays: set[str] = field(default_factory=set)  # uids of pods that do not find their master
    _stuck: StuckPods = field(default_factory=StuckPods)
    _forced: set[str] = field(default_factory=set)  # uids of pods that were deleted by force
    _memory: str | None = None  # of the next worker, if another one than in the settings
    _random: random.Random = field(default_factory=random.Random)
    _limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    # -- what runs

    def running(self) -> tuple[str, ...]:
        """Return the names of the services whose pods are there and have not ended."""
        return self.inventory.running()

    def take_exits(self) -> tuple[ProcessExit, ...]:
        """Return what has ended by itself since the call before."""
        return tuple(self._with_remedy(exit_, pod) for exit_, pod in self.inventory.take_exits())

    def notes(self) -> dict[str, str]:
        """Return why services that should run do not (yet), by name."""
        running = self.running()
        trials = {name: each.note for name, each in self._trials.items() if name not in running}
        return {name: note for name, note in trials.items() if note} | self.inventory.notes()

    def crowded(self) -> tuple[str, ...]:
        """Return the names of the services that there is no room for, on any node or in the namespace's quota."""
        refused = (name for name, each in self._trials.items() if each.is_crowded)
        return tuple(dict.fromkeys((*refused, *self.inventory.crowded())))

    def facts(self) -> Facts:
        """Return what the cluster lets be known of the job's pods."""
        return Facts(
            placed=self.inventory.placed(),
            crowded=self.crowded(),
            unreachable=self.inventory.unreachable(),
            notes=self.notes(),
        )

    # -- starting and stopping

    def expect(self, desired: Sequence[str], waiting: int) -> None:
        """These services are wanted now, and so many more workers if there was room; forget what is not wanted."""
        self.workers = max(1, count_workers(desired) + waiting)
        for name in [name for name in self._trials if name not in desired]:
            del self._trials[name]

    def adopt(self) -> None:
        """Take over the pods of the master's earlier life, but for those that would never find this one."""
        self._strays = {pod.uid for pod in self.inventory.pods() if self.objects.is_astray(pod)}

    def begin_launch(self, name: str) -> None:
        """Begin to create the pod of a service, unless that is under way, or failed a moment ago."""
        trial = self._trials.get(name)
        if name not in self._busy and (trial is None or self._now() >= trial.not_before_s):
            self._begin(name, lambda: self._create(name), f"create {name}")

    def begin_stop(self, name: str, *, is_hung: bool = False) -> None:
        """Begin to end a service; one that hangs has time to write down where it is, if its node answers."""
        can_write = is_hung and name not in self.inventory.unreachable()
        grace_s = HUNG_GRACE_S if can_write else STOP_GRACE_S
        self.inventory.on_stop(name)
        uid = self.inventory.uid_of(name)
        if uid:
            self._begin_delete(name, uid, grace_s)

    def tidy(self) -> None:
        """Begin to delete what is of no more use: pods that ended long ago, or that do not find their master."""
        strays = (pod for pod in self.inventory.pods() if pod.uid in self._strays) if self._strays else ()
        for pod in (*self.inventory.surplus(), *strays):
            self._begin_delete(pod.name, pod.uid, None)
        self._force_stuck()

    def _force_stuck(self) -> None:
        """Delete without their nodes the pods that were asked to go and cannot."""
        for pod in self._stuck.find(self.inventory.known(), self._now()):
            if pod.uid not in self._forced:
                self._forced.add(pod.uid)
                logger.warning("%s is deleted by force: its node does not answer", pod.name)
            self._begin_delete(pod.name, pod.uid, 0.0)

    async def delete_all(self, role: str, grace_s: float) -> None:
        """Delete all pods of a role (worker, ps), also those that have ended; return when they are gone."""
        while pods := [(name, uid) for name, uid in self.inventory.all_pods() if split_name(name)[0] == role]:
            for name, uid in pods:
                self.inventory.on_stop(name)
                self._begin_delete(name, uid, grace_s)
            self._force_stuck()
            await asyncio.sleep(GONE_POLL_S)

    # -- creating

    async def _create(self, name: str) -> None:
        """Create a service's pod, or find out why that cannot be done now."""
        try:
            if split_name(name)[0] == "ps":
                await self._create_service(name)
            if blockers := self.inventory.blockers(name):
                for pod in blockers:
                    self._begin_delete(name, pod.uid, None)
                self._await_its_name(name)
                return
            made = await self.api.create(self._pod(name), patience_s=0)
        except AlreadyExists:
            await self._look_at(name)
        except EdlzError as error:
            is_crowded = is_quota_used_up(error)
            is_soon = isinstance(error, PeerUnavailable) or is_crowded  # a worker may have gone meanwhile
            limit_s = LONGEST_OUTAGE_PAUSE_S if is_soon else LONGEST_PAUSE_S
            note = f"Pending: cannot be created: {told(error)}"
            self._put_off(name, note, limit_s, is_crowded=is_crowded)
        else:
            self._trials.pop(name, None)
            self.inventory.on_created(name, made.uid)
            self.changed.set()

    def _pod(self, name: str) -> Any:
        workers = (pod for pod in self.inventory.pods() if not pod.is_deleted and self._is_worker(pod))
        classes = [pod.spec.priority_class_name for pod in workers]
        return self.objects.pod(name, memory=self._memory, workers=self.workers, classes=classes)

    async def _look_at(self, name: str) -> None:
        """There is a pod of that name: ours, whose creation got no answer; an older master's; or a stranger's."""
        try:
            pod = await self.api.get_pod(self.objects.pod_name(name))
        except NotFound:
            self._await_its_name(name)
            return
        except EdlzError as error:
            self._put_off(name, f"Pending: {told(error)}", LONGEST_OUTAGE_PAUSE_S)
            return
        if not self._is_of_the_job(pod):
            self._put_off(name, f"Pending: the pod {pod.name} exists, and is not of this job; delete it")
            return
        self.inventory.on_found(pod)
        if name in self.running():
            self._trials.pop(name, None)
        else:
            self._await_its_name(name)

    async def _create_service(self, name: str) -> None:
        """See to it that a parameter server has an address that stays."""
        if name in self._served:
            return
        service = self.objects.service_name(name)
        try:
            await self.api.create(self.objects.service(name), patience_s=0)
        except AlreadyExists:
            found = msgspec.convert(await self.api.get("Service", service), Pod)
            if self.objects.owner.uid not in found.owner_uids:  # it goes with the master that it belonged to
                await self.api.delete("Service", service, uid=found.uid, patience_s=0)
                await self.api.create(self.objects.service(name), patience_s=0)
        self._served.add(name)

    def _put_off(
        self, name: str, note: str, longest_s: float = LONGEST_PAUSE_S, *, is_crowded: bool = False
    ) -> None:
        """Try again later, less and less often."""
        trial = self._trials.setdefault(name, _Trial())
        trial.is_crowded = is_crowded
        trial.not_before_s = self._now() + trial.pauses.take(longest_s) * self._random.uniform(0.75, 1.25)
        if note and trial.note != note:
            logger.warning("%s: %s", name, note)
        trial.note = note

    def _await_its_name(self, name: str) -> None:
        """Try again soon: a pod that holds the name is on its way."""
        self._trials[name] = _Trial(
            self._now() + FIRST_PAUSE_S, note="Pending: an older pod of its name goes first"
        )

    # -- deleting

    def _begin_delete(self, name: str, uid: str, grace_s: float | None) -> None:
        asked = self._asked_to_go.get(uid)
        is_sooner = asked is not None and grace_s is not None and grace_s < asked[0]
        if uid in self._busy or (asked is not None and self._now() < asked[1] and not is_sooner):
            return
        self._begin(uid, lambda: self._delete(name, uid, grace_s), f"delete {name}")

    async def _delete(self, name: str, uid: str, grace_s: float | None) -> None:
        pod_name = name if name.startswith(self.objects.pod_name("")) else self.objects.pod_name(name)
        again_s = FIRST_PAUSE_S
        if self.logs is not None:
            await self.logs.hold(uid)
        try:
            if await self.api.delete("Pod", pod_name, grace_s=grace_s, uid=uid, patience_s=0):
                again_s = DELETE_AGAIN_S + (grace_s or 0.0)
            else:
                self.inventory.on_deleted(uid)
                self.changed.set()
        except Conflict:  # another pod has its name
            self.inventory.on_deleted(uid)
            self.changed.set()
        except EdlzError as error:
            logger.warning("%s cannot be deleted: %s", name, told(error))
            again_s = FIRST_PAUSE_S * self._random.uniform(1, 4)
        self._asked_to_go[uid] = (float("inf") if grace_s is None else grace_s, self._now() + again_s)

    # -- small things

    def _begin(self, key: str, work: Callable[[], Coroutine[Any, Any, None]], label: str) -> None:
        self._busy.add(key)
        self.tasks.create_task(self._within_limit(key, work), name=label)

    async def _within_limit(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            async with self._limit:
                await work()
        finally:
            self._busy.discard(key)

    def _with_remedy(self, exit_: ProcessExit, pod: Pod | None) -> ProcessExit:
        """Give the next worker more memory than the one that ran out of it."""
        if exit_.cause != "out of memory" or not is_worker(exit_.name) or pod is None or pod.memory is None:
            return exit_
        more = self.objects.more_memory(pod.memory)
        if more is None or number_of(more) <= number_of(pod.memory):
            return exit_
        if self._memory is None or number_of(more) > number_of(self._memory):
            self._memory = more
        reason = f"{exit_.reason}; the next one gets {self._memory}"
        return msgspec.structs.replace(exit_, reason=reason, is_remedied=True)

    def _is_worker(self, pod: Pod) -> bool:
        return pod.name.startswith(self.objects.pod_name("worker-"))

    def _is_of_the_job(self, pod: Pod) -> bool:
        wanted = dict(part.split("=", 1) for part in self.objects.selector.split(","))
        return wanted.items() <= pod.labels.items()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

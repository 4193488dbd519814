"""The core that knows which pods of a job there are, from lists and watch events that come in any order.

Theory of operation.  A pod is known by its uid, and its life (`Life`) goes one way only.  So what is known of it is
the furthest that anybody has said: an event that comes twice, late or out of order changes nothing, and resource
versions need not be compared (to a client they are opaque).
A list is the ground truth.  What it lacks is gone, if it was known before the list was asked for; a pod that
was made meanwhile, or that the server has not shown yet, is not.  The end of each uid is told once.

Pods that another master pod owns are no part of the job: they are leftovers that hold a name until they are gone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from edlz.k8s.cluster.api_records import Pod, PodEvent
from edlz.k8s.pods.pod_exits import (
    exit_of,
    has_begun,
    has_ended,
    is_behind,
    is_out_of_reach,
    lacks_room,
    note_of,
    vanished,
)
from edlz.services.protocol.messages import ProcessExit
from edlz.services.supervision.launcher import is_worker
from edlz.services.transitions import Transitions

__all__ = ["KEPT_ENDED", "STEPS", "Life", "PodInventory", "Ticket", "life_of"]

KEPT_ENDED = 20  # pods of workers that have ended: their logs can still be read
_REMEMBERED = 10_000  # uids that are gone

Ticket = int


class Life(Enum):
    """How far a pod is, as far as anybody has said."""

    MADE = "made"  # the server has taken it, and has not shown it yet
    PENDING = "pending"  # shown: it waits for a node, or for its image
    RUNNING = "running"
    LEAVING = "leaving"  # asked to go; it may never have run
    ENDED = "ended"  # it runs no more, and holds its name
    GONE = "gone"


# It goes one way only.  Whoever watches may miss any number of steps, so each may follow all that come before it.
_IN_ORDER = list(Life)
STEPS = Transitions("a pod", Life.MADE, {life: set(_IN_ORDER[at + 1 :]) for at, life in enumerate(_IN_ORDER)})


def life_of(pod: Pod) -> Life:
    """Return how far a pod is, by what the server says of it."""
    if has_ended(pod):
        return Life.ENDED
    if pod.is_deleted:
        return Life.LEAVING
    return Life.RUNNING if has_begun(pod) else Life.PENDING


@dataclass(slots=True)
class _Entry:
    """A pod of the job.

    Attributes
    ----------
    pod : Pod, optional
        As it was heard of last; None if only its creation is known.
    since : int
        The count of events when it became known.
    launch : int
        The number of its start: greater than that of any pod before it.
    life : Life
    is_stopped : bool
        Its end was asked for here, so it is no exit to tell.
    """

    name: str
    since: int
    launch: int
    pod: Pod | None = None
    life: Life = Life.MADE
    is_stopped: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self.life in (Life.ENDED, Life.GONE)

    def enter(self, life: Life) -> None:
        """Go on to where a pod is now, which may be where it was.

        Raises
        ------
        LocalProtocolError
            If nothing leads there from where it was; nothing has changed.
        """
        if life is not self.life:
            STEPS.check(self.life, life)
            self.life = life


class PodInventory:
    """The pods of one job.

    Parameters
    ----------
    owner_uid : str
        The master pod's.
    prefix : str
        Of pods' names, up to and with the dash before `worker-0`.
    first_launch : int
        Number of the first start; greater than any that an earlier master has told.

    Attributes
    ----------
    is_complete : bool
        Whether a list has been seen: before it nobody knows what runs.
    """

    def __init__(self, owner_uid: str, prefix: str, first_launch: int = 1) -> None:
        self._owner_uid, self._prefix = owner_uid, prefix
        self._launch = first_launch
        self._count = 0  # of everything that was taken in
        self._entries: dict[str, _Entry] = {}  # by uid, in the order in which they became known
        self._leftovers: dict[str, tuple[Pod, int]] = {}  # by uid: another master's -> since when
        self._gone: dict[str, None] = {}  # uids that never come back, the newest last
        self._exits: list[tuple[ProcessExit, Pod | None]] = []
        self.is_complete = False

    # -- what there is

    def running(self) -> tuple[str, ...]:
        """Return the names of the services whose pods are there and have not ended, oldest first."""
        return tuple(dict.fromkeys(each.name for each in self._entries.values() if not each.has_ended))

    def uid_of(self, name: str) -> str:
        """Return the uid of the pod of a service that runs, or nothing."""
        entry = self._live(name)
        return next((uid for uid, each in self._entries.items() if each is entry), "")

    def pods(self) -> tuple[Pod, ...]:
        """Return the pods of services that run, as far as they have been seen."""
        return tuple(each.pod for each in self._entries.values() if each.pod and not each.has_ended)

    def placed(self) -> tuple[str, ...]:
        """Return the names of the services that a node has taken.

        A parameter server that was asked to go has its place no more: who waits could be given it.  A worker has
        it until it has ended, since only then its end can be told.
        """
        live = [each for each in self._entries.values() if each.pod and not each.has_ended]
        return tuple(
            each.name
            for each in live
            if each.pod and each.pod.spec.node_name and (is_worker(each.name) or not each.pod.is_deleted)
        )

    def crowded(self) -> tuple[str, ...]:
        """Return the names of the services that no node has room for."""
        return tuple(each.name for each in self._entries.values() if each.pod and lacks_room(each.pod))

    def unreachable(self) -> tuple[str, ...]:
        """Return the names of the services whose nodes do not answer any more."""
        live = (each for each in self._entries.values() if each.pod and not each.has_ended)
        return tuple(each.name for each in live if each.pod and is_out_of_reach(each.pod))

    def known(self) -> tuple[Pod, ...]:
        """Return all pods that have been seen and are not gone, also another master's and those that have ended."""
        own = (each.pod for each in self._entries.values() if each.pod)
        return (*own, *self.leftovers())

    def blockers(self, name: str) -> tuple[Pod, ...]:
        """Return the pods that hold a service's name although they do not run any more, or do not belong to the job."""
        ended = [each.pod for each in self._entries.values() if each.name == name and each.has_ended]
        left = [pod for pod, _ in self._leftovers.values() if self._name_of(pod) == name]
        return (*(pod for pod in ended if pod is not None), *left)

    def leftovers(self) -> tuple[Pod, ...]:
        """Return the pods with the job's labels that another master pod owns."""
        return tuple(pod for pod, _ in self._leftovers.values())

    def surplus(self) -> tuple[Pod, ...]:
        """Return the oldest of the pods that have ended, beyond those that are kept for their logs."""
        ended = [each.pod for each in self._entries.values() if each.has_ended and each.pod]
        return tuple(ended[: max(0, len(ended) - KEPT_ENDED)])

    def all_pods(self) -> tuple[tuple[str, str], ...]:
        """Return name and uid of every pod of the job that is there, also of those that have ended."""
        return tuple((each.name, uid) for uid, each in self._entries.items())

    def notes(self) -> dict[str, str]:
        """Return why services that should run do not (yet), by name."""
        found = {each.name: note_of(each.pod) for each in self._entries.values() if each.pod}
        return {name: note for name, note in found.items() if note}

    def take_exits(self) -> tuple[tuple[ProcessExit, Pod | None], ...]:
        """Return what has ended by itself since the call before, and its pod as far as it was seen."""
        exits, self._exits = tuple(self._exits), []
        return exits

    # -- what happens

    def begin_list(self) -> Ticket:
        """A list is about to be asked for; return what `on_list` needs."""
        return self._count

    def on_list(self, ticket: Ticket, pods: Iterable[Pod]) -> None:
        """All pods of the job, as the server knew them after `begin_list` gave this ticket."""
        seen = set()
        for pod in pods:
            seen.add(pod.uid)
            self._take(pod, is_listed=True)
        known = [(uid, each.since) for uid, each in self._entries.items()]
        known += [(uid, since) for uid, (_, since) in self._leftovers.items()]
        for uid, since in known:
            if uid not in seen and since <= ticket:
                self._lose(uid)
        self.is_complete = True

    def on_event(self, event: PodEvent) -> None:
        """An event of a watch."""
        if event.type == "BOOKMARK" or not event.object.uid:
            return
        self._take(event.object, is_listed=False)
        if event.type == "DELETED":
            self._lose(event.object.uid)

    def on_found(self, pod: Pod) -> None:
        """A pod as the server has it now."""
        self._take(pod, is_listed=True)

    def on_created(self, name: str, uid: str) -> None:
        """The server has taken a pod for a service."""
        if uid not in self._entries and uid not in self._gone:
            self._add(name, uid)

    def on_stop(self, name: str) -> None:
        """A service's end was asked for here: it is not told as an exit."""
        entry = self._live(name)
        if entry is not None:
            entry.is_stopped = True

    def on_deleted(self, uid: str) -> None:
        """The server has no such pod any more."""
        self._lose(uid)

    # -- one pod

    def _take(self, pod: Pod, *, is_listed: bool) -> None:
        uid, name = pod.uid, self._name_of(pod)
        if uid in self._gone or not name:
            return
        if self._owner_uid not in pod.owner_uids:
            self._count += uid not in self._leftovers
            self._leftovers[uid] = (pod, self._leftovers.get(uid, (pod, self._count))[1])
            return
        entry = self._entries.get(uid)
        if entry is None:
            if not is_listed and self._is_held(name):
                return  # two of a name cannot be: which of them is there, the next list tells
            entry = self._add(name, uid)
        if entry.has_ended or (entry.pod is not None and is_behind(pod, entry.pod)):
            return
        life = life_of(pod)
        entry.enter(life)
        entry.pod = pod
        if life is Life.ENDED:
            self._tell(entry, exit_of(pod, name, entry.launch))

    def _add(self, name: str, uid: str) -> _Entry:
        self._count += 1
        entry = self._entries[uid] = _Entry(name, since=self._count, launch=self._launch)
        self._launch += 1
        return entry

    def _lose(self, uid: str) -> None:
        if uid in self._gone:
            return
        self._gone[uid] = None
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        self._leftovers.pop(uid, None)
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        if not entry.has_ended:
            self._tell(entry, vanished(entry.pod, entry.name, entry.launch))
        entry.enter(Life.GONE)

    def _tell(self, entry: _Entry, exit_: ProcessExit | None) -> None:
        """Tell how a pod has ended, unless that was asked for here."""
        if exit_ is not None and not entry.is_stopped:
            self._exits.append((exit_, entry.pod))

    def _is_held(self, name: str) -> bool:
        return any(each.name == name for each in self._entries.values())

    def _live(self, name: str) -> _Entry | None:
        live = (each for each in self._entries.values() if each.name == name and not each.has_ended)
        return next(live, None)

    def _name_of(self, pod: Pod) -> str:
        """Return the service's name: worker-3; nothing for a pod that is not a service of the job."""
        name = pod.name.removeprefix(self._prefix)
        role, _, number = name.partition("-")
        is_service = pod.name.startswith(self._prefix) and role in ("ps", "worker") and number.isdigit()
        return name if is_service else ""

    # -- checks

    def check_invariants(self) -> None:
        launches = [each.launch for each in self._entries.values()]
        assert launches == sorted(set(launches)), "starts are not numbered in order"
        assert not self._gone.keys() & (self._entries.keys() | self._leftovers.keys()), "gone and there"
        assert not self._entries.keys() & self._leftovers.keys(), "the job's and another's"
        for entry in self._entries.values():
            assert entry.life is (life_of(entry.pod) if entry.pod else Life.MADE), f"{entry} is elsewhere"

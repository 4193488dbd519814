"""Nothing holds the room that the job needs to run at all: parameter servers before workers, whatever a scheduler does."""

import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.services.master.core.processes.desired_processes import DesiredProcesses
from edlz.services.master.core.processes.places import PATIENCE_S, Places
from edlz.services.protocol.messages import ProcessExit, SupervisorOrders
from edlz.services.supervision.launcher import count_workers, is_worker
from edlz.services.supervision.reconciler import Reconciler

SETTLED_S = 400  # longer than the last of five workers waits to make room
GRACE_S = 4


@dataclass
class PodStandIn:
    """A pod: where it runs, and until when if it is to go."""

    node: int | None = None
    gone_at_s: float | None = None
    is_asked_here: bool = False


@dataclass
class SmallCluster:
    """Nodes, a quota and a scheduler that takes waiting pods in any order, under a DesiredProcesses and a Reconciler.

    Attributes
    ----------
    nodes : what each has room for
    sizes : what a parameter server and a worker ask for
    quota : pods that there may be at a time
    """

    desired: DesiredProcesses
    nodes: list[int]
    sizes: dict[bool, int]
    quota: int
    servers: int
    random: random.Random
    pods: dict[str, PodStandIn] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.core = Reconciler()
        self.asked: list[str] = []  # creations that are under way
        self.refused: set[str] = set()
        self.yielded: list[tuple[str, str]] = []
        self.launches = 0

    # -- the cluster

    def free(self, node: int) -> int:
        taken = (self.sizes[is_worker(name)] for name, pod in self.pods.items() if pod.node == node)
        return self.nodes[node] - sum(taken)

    def schedule(self) -> None:
        waiting = [name for name, pod in self.pods.items() if pod.node is None]
        self.random.shuffle(waiting)
        for name in waiting:
            fitting = [
                node for node in range(len(self.nodes)) if self.free(node) >= self.sizes[is_worker(name)]
            ]
            if fitting:
                self.pods[name].node = self.random.choice(fitting)

    def create(self) -> None:
        self.random.shuffle(self.asked)
        for name in [name for name in self.asked if self.random.random() < 0.7]:
            self.asked.remove(name)
            if name in self.pods:
                continue
            self.refused.discard(name)
            if len(self.pods) >= self.quota:
                self.refused.add(name)
            else:
                self.pods[name] = PodStandIn()

    def delete(self, name: str, *, is_asked_here: bool = False) -> None:
        pod = self.pods[name]
        pod.is_asked_here |= is_asked_here
        if pod.node is None:
            self.end(name)
        elif pod.gone_at_s is None:
            pod.gone_at_s = self.now + self.random.randint(0, GRACE_S)

    def end(self, name: str) -> None:
        if not self.pods.pop(name).is_asked_here:
            self.launches += 1
            self.core.on_exits([ProcessExit(name=name, code=None, signal=9, launch=self.launches)])

    # -- one round

    def step(self) -> None:
        self.now += 1.0
        for name in [name for name, pod in self.pods.items() if pod.gone_at_s and pod.gone_at_s <= self.now]:
            self.end(name)
        for work in self.random.sample([self.create, self.schedule, self.poll], 3):
            work()
        self.desired.check_invariants()

    def poll(self) -> None:
        status = self.core.next_status(tuple(self.pods))
        self.desired.on_status(
            status.running, status.exits, None, self.now, placed=self.placed, crowded=self.crowded
        )
        self.yielded += self.desired.take_yielded()
        orders = SupervisorOrders(term=1, desired=self.desired.names(self.now))
        action = self.core.on_orders(orders, tuple(self.pods))
        self.asked += [name for name in action.launch if name not in self.asked]
        self.refused &= set(orders.desired)
        for name in (*action.stop, *action.abort):
            self.delete(name, is_asked_here=True)

    @property
    def placed(self) -> tuple[str, ...]:
        return tuple(
            name
            for name, pod in self.pods.items()
            if pod.node is not None and (is_worker(name) or pod.gone_at_s is None)
        )

    @property
    def crowded(self) -> tuple[str, ...]:
        room = max(self.free(node) for node in range(len(self.nodes)))
        small = [
            name for name, pod in self.pods.items() if pod.node is None and room < self.sizes[is_worker(name)]
        ]
        return (*self.refused, *small)

    def settle(self) -> None:
        for _ in range(SETTLED_S):
            self.step()

    def has_room_for_servers(self) -> bool:
        fitting = sum(max(0, room) // self.sizes[False] for room in self.nodes)
        return fitting >= self.servers and self.quota >= self.servers

    @property
    def lacking(self) -> list[str]:
        names = [f"ps-{index}" for index in range(self.servers)]
        return [name for name in names if name not in self.placed]


def cluster_of(*nodes: int, workers: int, servers: int, quota: int = 100, seed: int = 0) -> SmallCluster:
    desired = DesiredProcesses(workers, servers, relaunches=1_000)
    return SmallCluster(desired, list(nodes), {True: 9, False: 9}, quota, servers, random.Random(seed))


# ---------------------------------------------------------------- the recorded cases


@pytest.mark.parametrize("seed", range(8))
def test_at_the_start_no_worker_wins_the_race_for_a_servers_place(seed: int) -> None:
    """Two nodes of two cores, two servers and four workers of 900m each: four of the six fit."""
    cluster = cluster_of(20, 20, workers=4, servers=2, seed=seed)
    cluster.settle()
    assert not cluster.lacking
    assert count_workers(cluster.placed) == 2
    assert cluster.yielded == []


@pytest.mark.parametrize("seed", range(8))
def test_a_quota_is_used_for_the_servers_first(seed: int) -> None:
    cluster = cluster_of(100, workers=4, servers=1, quota=2, seed=seed)
    cluster.settle()
    assert not cluster.lacking
    assert count_workers(cluster.placed) == 1


@pytest.mark.parametrize("is_told_before", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_lost_servers_place_is_not_left_to_a_waiting_worker(seed: int, is_told_before: bool) -> None:
    cluster = cluster_of(20, 20, workers=4, servers=2, seed=seed)
    cluster.settle()
    assert set(cluster.pods) - set(cluster.placed), "no worker waits"
    if is_told_before:
        cluster.delete("ps-0")
    else:
        cluster.end("ps-0")
        cluster.schedule()  # the waiting worker has its place before anybody hears of it
    cluster.settle()
    assert not cluster.lacking
    assert count_workers(cluster.placed) == 2


# ---------------------------------------------------------------- who makes room


def processes_with_a_crowded_server(*ready: str) -> DesiredProcesses:
    desired = DesiredProcesses(3, 1)
    names = ("ps-0", "worker-0", "worker-1", "worker-2")
    desired.on_status([], [], None, 0.0, placed=())
    assert desired.names(0.0) == ("ps-0",)
    desired.on_status(names[:1], [], None, 0.0, placed=names[:1])
    assert desired.names(0.0) == names
    desired.on_status(names, [], None, 1.0, placed=names)
    for name in ready:
        desired.note_ready(name)
    desired.on_status(names[1:], [], None, 2.0, placed=names[1:], crowded=names[:1])
    return desired


def test_the_youngest_makes_room_after_a_while_one_at_a_time_and_is_not_to_blame() -> None:
    desired = processes_with_a_crowded_server("worker-0", "worker-1", "worker-2")
    workers = ["worker-0", "worker-1", "worker-2"]
    assert desired.take_yielded() == []
    now = 2.0 + PATIENCE_S
    assert desired.on_status(workers, [], None, now, placed=workers, crowded=["ps-0"]) == []
    assert desired.take_yielded() == [("worker-2", "ps-0")]
    assert (desired.lost, desired.waiting(now)) == (0, 1)
    assert desired.names(now) == ("ps-0", "worker-0", "worker-1")  # who joins in its place waits

    for _ in range(3):  # it has not gone yet
        now += PATIENCE_S
        desired.on_status(workers, [], None, now, placed=workers, crowded=["ps-0"])
        assert desired.take_yielded() == []
    desired.on_status(workers[:2], [], None, now, placed=workers[:2], crowded=["ps-0"])
    assert desired.take_yielded() == []
    now += 2 * PATIENCE_S
    desired.on_status(workers[:2], [], None, now, placed=workers[:2], crowded=["ps-0"])
    assert desired.take_yielded() == [("worker-1", "ps-0")]

    placed = ["ps-0", "worker-0"]
    desired.on_status(placed, [], None, now, placed=placed)
    assert desired.names(now) == ("ps-0", "worker-0", "worker-3", "worker-4")
    assert desired.lost == 0


def yields_within(places: Places, workers: list[str], seconds: int) -> list[float]:
    """Let workers that yield be gone at once, though that helps the server in no way; return when they did."""
    seen = []
    for now in range(seconds):
        places.on_status(workers, ["ps-0"])
        if places.who_yields(workers, workers, workers, float(now)):
            workers.pop()
            seen.append(now)
    return seen


def test_the_less_it_helps_the_longer_the_next_one_is_left_alone() -> None:
    """A node is about to be added for the server, and no worker's room would do."""
    workers = [f"worker-{number}" for number in range(20)]
    places = Places(["ps-0"])
    times = [0, *yields_within(places, workers, 300)]
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert waits == pytest.approx([10, 20, 40, 80], abs=1.5)

    places.on_status([*workers, "ps-0"], [])
    assert places.who_yields([*workers, "ps-0"], workers, workers, 300.0) is None
    [first, *_] = yields_within(places, workers, 60)
    assert first == PATIENCE_S


def test_who_does_not_train_yet_makes_room_first() -> None:
    desired = processes_with_a_crowded_server("worker-1", "worker-2")
    workers = ["worker-0", "worker-1", "worker-2"]
    desired.on_status(workers, [], None, 2.0 + PATIENCE_S, placed=workers, crowded=["ps-0"])
    assert desired.take_yielded() == [("worker-0", "ps-0")]


def test_nobody_makes_room_for_a_server_that_waits_for_something_else() -> None:
    desired = processes_with_a_crowded_server()
    workers = ["worker-0", "worker-1", "worker-2"]
    for now in (20.0, 100.0, 1000.0):  # its image cannot be pulled, an older pod holds its name
        desired.on_status(workers, [], None, now, placed=workers)
        assert desired.take_yielded() == []
        assert desired.names(now) == ("ps-0", *workers)


def test_waiting_workers_are_withdrawn_and_come_back_under_their_names() -> None:
    desired = DesiredProcesses(2, 1)
    desired.on_status([], [], None, 0.0, placed=())
    desired.on_status(["ps-0"], [], None, 0.0, placed=["ps-0"])
    names = ["ps-0", "worker-0", "worker-1"]
    desired.on_status(names, [], None, 1.0, placed=["worker-0"], crowded=["ps-0"])
    assert (desired.names(1.0), desired.waiting(1.0)) == (("ps-0", "worker-0"), 1)
    desired.on_status(names[:2], [], None, 2.0, placed=names[:2])
    assert desired.names(2.0) == tuple(names)


def test_where_whatever_is_started_has_its_place_nobody_waits_for_a_server() -> None:
    """A machine with slots: they are for workers alone, and servers are started before them."""
    desired = DesiredProcesses(2, 2)
    desired.on_status([], [], 1, 0.0)
    assert desired.names(0.0) == ("ps-0", "ps-1", "worker-0")


# ---------------------------------------------------------------- any order


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(5, 40), min_size=1, max_size=3),
    st.tuples(st.integers(3, 12), st.integers(3, 12)),
    st.tuples(st.integers(1, 5), st.integers(1, 3)),
    st.integers(1, 8),
    st.lists(
        st.tuples(
            st.sampled_from(["step", "end", "delete", "shrink", "grow", "scale", "quota", "master"]),
            st.integers(0, 9),
        ),
        max_size=30,
    ),
    st.integers(0, 2**20),
)
def test_the_servers_have_their_places_in_the_end_if_there_is_room_for_them_at_all(
    nodes: list[int],
    sizes: tuple[int, int],
    counts: tuple[int, int],
    quota: int,
    events: list[tuple[str, int]],
    seed: int,
) -> None:
    workers, servers = counts
    desired = DesiredProcesses(workers, servers, relaunches=1_000)
    cluster = SmallCluster(
        desired, nodes, {True: sizes[0], False: sizes[1]}, quota, servers, random.Random(seed)
    )
    for kind, number in events:
        names, node = list(cluster.pods), number % len(nodes)
        if kind == "step":
            for _ in range(number):
                cluster.step()
        elif kind in ("end", "delete") and names:
            (cluster.end if kind == "end" else cluster.delete)(names[number % len(names)])
        elif kind == "shrink":  # somebody else's pods take what is free
            cluster.nodes[node] -= min(number, max(0, cluster.free(node)))
        elif kind == "grow":
            cluster.nodes[node] += number
        elif kind == "scale":
            cluster.desired.scale(number, cluster.now)
        elif kind == "quota":
            cluster.quota = number
        elif kind == "master":
            cluster.desired = DesiredProcesses(
                workers, servers, relaunches=1_000, record=cluster.desired.record
            )
        cluster.step()
    cluster.settle()
    if not cluster.has_room_for_servers():
        return
    assert not cluster.lacking
    there = count_workers(cluster.pods) + count_workers(cluster.refused)
    assert there == cluster.desired.target, "a worker that could wait for room does not"
    before = len(cluster.yielded)
    cluster.settle()
    assert len(cluster.yielded) == before, "workers make room that nobody needs"

"""Which pods there are, from lists and events that come twice, late, in any order, or never."""

import datetime
import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edlz.k8s.cluster.api_records import (
    Container,
    ContainerState,
    ContainerStatus,
    Metadata,
    OwnerReference,
    Pod,
    PodEvent,
    PodSpec,
    PodStatus,
    Terminated,
)
from edlz.k8s.pods.pod_inventory import KEPT_ENDED, STEPS, Life, PodInventory, life_of
from edlz.services.errors import LocalProtocolError

OURS, OTHERS = "master-uid", "older-master-uid"
PREFIX = "elasticdl-j-"
STAMP = datetime.datetime.fromisoformat("2026-11-27T21:11:46+00:00")


def pod(name: str, uid: str, phase: str = "Pending", owner: str = OURS, code: int | None = None) -> Pod:
    state = None if code is None else ContainerState(terminated=Terminated(exit_code=code))
    statuses = (ContainerStatus(name=PREFIX + name, state=state),)
    return Pod(
        metadata=Metadata(name=PREFIX + name, uid=uid, owner_references=(OwnerReference(uid=owner),)),
        spec=PodSpec(restart_policy="Never", containers=(Container(name=PREFIX + name),)),
        status=PodStatus(phase=phase, container_statuses=statuses),
    )


def failed(name: str, uid: str, code: int = 1) -> Pod:
    return pod(name, uid, "Failed", code=code)


def event(kind: str, about: Pod) -> PodEvent:
    return PodEvent(type=kind, object=about)


def listed(inventory: PodInventory, *pods: Pod) -> None:
    inventory.on_list(inventory.begin_list(), pods)


def exits(inventory: PodInventory) -> list[tuple[str, str]]:
    inventory.check_invariants()
    return [(exit_.name, exit_.reason) for exit_, _ in inventory.take_exits()]


def test_nobody_knows_what_runs_before_a_list() -> None:
    inventory = PodInventory(OURS, PREFIX)
    assert not inventory.is_complete
    listed(inventory, pod("worker-0", "a"), pod("ps-0", "b", "Running"), pod("ps-x", "c"))
    assert inventory.is_complete
    assert inventory.running() == ("worker-0", "ps-0")


def test_a_pod_that_was_made_runs_until_a_list_of_later_lacks_it() -> None:
    inventory = PodInventory(OURS, PREFIX)
    early = inventory.begin_list()
    inventory.on_created("worker-0", "a")
    inventory.on_list(early, [])
    assert inventory.running() == ("worker-0",)
    listed(inventory)
    assert inventory.running() == ()
    assert exits(inventory) == [("worker-0", "its pod is gone: deleted, or its node was lost")]


def test_each_end_is_told_once_whatever_comes_again() -> None:
    inventory = PodInventory(OURS, PREFIX)
    inventory.on_event(event("ADDED", pod("worker-0", "a", "Running")))
    for _ in range(2):
        inventory.on_event(event("MODIFIED", failed("worker-0", "a")))
        listed(inventory, failed("worker-0", "a"))
        inventory.on_event(event("DELETED", failed("worker-0", "a")))
        inventory.on_event(event("ADDED", pod("worker-0", "a", "Running")))
    assert inventory.running() == ()
    assert exits(inventory) == [("worker-0", "exit code 1")]


def test_an_end_that_was_asked_for_is_not_told() -> None:
    inventory = PodInventory(OURS, PREFIX)
    listed(inventory, pod("worker-0", "a", "Running"), pod("worker-1", "b", "Running"))
    inventory.on_stop("worker-0")
    assert inventory.running() == ("worker-0", "worker-1")
    inventory.on_event(event("DELETED", failed("worker-0", "a", 143)))
    inventory.on_event(event("DELETED", failed("worker-1", "b", 143)))
    assert inventory.running() == ()
    assert [name for name, _ in exits(inventory)] == ["worker-1"]


def test_the_new_pod_of_a_parameter_server_outlives_news_of_the_old_one() -> None:
    inventory = PodInventory(OURS, PREFIX)
    listed(inventory, failed("ps-0", "a"))
    (first,) = inventory.take_exits()
    assert [each.uid for each in inventory.blockers("ps-0")] == ["a"]
    inventory.on_deleted("a")
    inventory.on_created("ps-0", "b")
    inventory.on_event(event("MODIFIED", failed("ps-0", "a")))
    inventory.on_event(event("DELETED", failed("ps-0", "a")))
    assert inventory.running() == ("ps-0",)
    assert inventory.blockers("ps-0") == ()
    inventory.on_event(event("MODIFIED", failed("ps-0", "b")))
    (second,) = inventory.take_exits()
    assert second[0].launch > first[0].launch


def test_an_unknown_pod_of_a_name_that_runs_is_left_to_the_next_list() -> None:
    inventory = PodInventory(OURS, PREFIX)
    inventory.on_created("ps-0", "new")
    inventory.on_event(event("ADDED", pod("ps-0", "old")))
    listed(inventory, pod("ps-0", "new"))
    assert (inventory.running(), exits(inventory)) == (("ps-0",), [])
    inventory.on_found(pod("ps-0", "newer"))
    listed(inventory, pod("ps-0", "newer"))
    assert inventory.uid_of("ps-0") == "newer"


def test_pods_of_another_master_do_not_run_here_but_hold_their_names() -> None:
    inventory = PodInventory(OURS, PREFIX)
    listed(inventory, pod("worker-0", "a", "Running", owner=OTHERS))
    assert inventory.running() == ()
    assert [each.uid for each in inventory.blockers("worker-0")] == ["a"]
    inventory.on_event(event("DELETED", pod("worker-0", "a", owner=OTHERS)))
    assert inventory.blockers("worker-0") == ()
    assert exits(inventory) == []


def test_only_the_newest_ended_pods_are_kept() -> None:
    inventory = PodInventory(OURS, PREFIX)
    listed(inventory, *(failed(f"worker-{i}", f"u{i}") for i in range(KEPT_ENDED + 2)))
    assert [each.uid for each in inventory.surplus()] == ["u0", "u1"]


def test_launches_go_on_from_a_number_that_no_earlier_master_has_told() -> None:
    inventory = PodInventory(OURS, PREFIX, first_launch=1000)
    listed(inventory, failed("worker-0", "a"))
    assert inventory.take_exits()[0][0].launch == 1000


def asked_to_go(about: Pod) -> Pod:
    metadata = msgspec.structs.replace(about.metadata, deletion_timestamp=STAMP)
    return msgspec.structs.replace(about, metadata=metadata)


def test_how_far_a_pod_is() -> None:
    """Also one that is asked to go before it has run."""
    pending, running, ended = pod("ps-0", "a"), pod("ps-0", "a", "Running"), failed("ps-0", "a")
    pods = [pending, running, asked_to_go(pending), asked_to_go(running), ended, asked_to_go(ended)]
    expected = [Life.PENDING, Life.RUNNING, Life.LEAVING, Life.LEAVING, Life.ENDED, Life.ENDED]
    assert [life_of(each) for each in pods] == expected


def test_no_life_goes_back() -> None:
    for before, life in itertools.combinations_with_replacement(Life, 2):
        with pytest.raises(LocalProtocolError, match=f"a pod that was {life.value} cannot be {before.value}"):
            STEPS.check(life, before)


class Server:
    """What is true, and everything that a watcher could be told of it."""

    def __init__(self) -> None:
        self.there: dict[str, Pod] = {}
        self.history: list[PodEvent] = []
        self.stopped: set[str] = set()
        self.ended: dict[str, str] = {}  # uid -> name, of all that has ended or gone
        self.serial = 0

    def create(self, name: str) -> str:
        assert all(each.name != PREFIX + name for each in self.there.values())
        self.serial += 1
        uid = f"u{self.serial}"
        self.there[uid] = pod(name, uid)
        self.history.append(event("ADDED", self.there[uid]))
        return uid

    def change(self, uid: str, phase: str, code: int | None = None) -> None:
        old = self.there[uid]
        if old.status.phase in ("Failed", "Succeeded") or (old.status.phase, phase) == ("Running", "Pending"):
            return
        name = old.name.removeprefix(PREFIX)
        new = pod(name, uid, phase, code=code)
        self.there[uid] = msgspec.structs.replace(new, metadata=old.metadata)
        if code is not None:
            self.ended[uid] = name
        self.history.append(event("MODIFIED", self.there[uid]))

    def ask_to_go(self, uid: str) -> None:
        self.there[uid] = asked_to_go(self.there[uid])
        self.history.append(event("MODIFIED", self.there[uid]))

    def remove(self, uid: str) -> None:
        self.history.append(event("DELETED", self.there[uid]))
        self.ended.setdefault(uid, self.there.pop(uid).name.removeprefix(PREFIX))


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "run", "fail", "succeed", "ask", "remove", "event", "event", "event", "list", "stop"]
        ),
        st.integers(0, 10**6),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=300)
@given(CHANGES)
def test_whatever_is_lost_doubled_or_late_the_next_list_makes_it_right(steps: list[tuple[str, int]]) -> None:
    server, inventory = Server(), PodInventory(OURS, PREFIX)
    told: list[tuple[str, int]] = []
    known: set[str] = set()  # uids whose creation the inventory was told of
    pending: tuple[int, list[Pod]] | None = None  # a list that is under way
    for kind, number in steps:
        uids = list(server.there)
        uid = uids[number % len(uids)] if uids else ""
        if kind == "create":
            name = ("ps-0", "worker-1", "worker-2")[number % 3]
            if name not in inventory.running() and not inventory.blockers(name):
                if any(each.name == PREFIX + name for each in server.there.values()):
                    found = next(each for each in server.there.values() if each.name == PREFIX + name)
                    inventory.on_found(found)  # as after AlreadyExists
                else:
                    inventory.on_created(name, uid := server.create(name))
                    known.add(uid)
        elif kind == "list":
            if pending is None:
                pending = (inventory.begin_list(), list(server.there.values()))
            else:
                inventory.on_list(*pending)
                pending = None
        elif kind == "event" and server.history:
            inventory.on_event(server.history[number % len(server.history)])
        elif kind == "stop":
            names = inventory.running()
            if names:
                name = names[number % len(names)]
                server.stopped.add(inventory.uid_of(name))
                inventory.on_stop(name)
        elif uid:
            change = {
                "run": lambda: server.change(uid, "Running"),  # noqa: B023
                "fail": lambda: server.change(uid, "Failed", 1),  # noqa: B023
                "succeed": lambda: server.change(uid, "Succeeded", 0),  # noqa: B023
                "ask": lambda: server.ask_to_go(uid),  # noqa: B023
                "remove": lambda: server.remove(uid),  # noqa: B023
            }
            if kind in change:
                change[kind]()
        inventory.check_invariants()
        told += [(exit_.name, exit_.launch) for exit_, _ in inventory.take_exits()]
    inventory.on_list(inventory.begin_list(), server.there.values())
    told += [(exit_.name, exit_.launch) for exit_, _ in inventory.take_exits()]
    alive = {each.name.removeprefix(PREFIX) for uid, each in server.there.items() if uid not in server.ended}
    assert set(inventory.running()) == alive
    assert len(told) == len(set(told)), "an end was told twice"
    unasked = [uid for uid in known if uid in server.ended and uid not in server.stopped]
    assert len(told) == len(unasked), "an end was not told, or one was invented"

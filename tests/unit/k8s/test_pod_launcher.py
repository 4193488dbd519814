"""The launcher of pods against a cluster that refuses, loses answers, and has pods of others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from edlz.k8s.cluster.api_errors import AlreadyExists, Conflict, Forbidden, NotFound
from edlz.k8s.cluster.api_records import (
    Container,
    ContainerState,
    ContainerStatus,
    Metadata,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Resources,
    Terminated,
)
from edlz.k8s.cluster.names import Owner, labels
from edlz.k8s.pods import launcher as launcher_module
from edlz.k8s.pods.launcher import STOP_GRACE_S, PodLauncher
from edlz.k8s.pods.pod_inventory import PodInventory
from edlz.services.errors import PeerUnavailable
from edlz.services.supervision.launcher import HUNG_GRACE_S

OURS = Owner("elasticdl-j-master", "master-uid")
PREFIX = "elasticdl-j-"


class Objects:
    """Stands for JobObjects: what is created is its name and what it was made with."""

    owner = OURS
    selector = "app=elasticdl,elasticdl-job-name=j"

    def pod_name(self, name: str) -> str:
        return PREFIX + name

    def service_name(self, name: str) -> str:
        return PREFIX + name

    def pod(self, name: str, **about: Any) -> tuple[str, str, dict[str, Any]]:
        return ("Pod", PREFIX + name, about)

    def is_astray(self, pod: Pod) -> bool:
        return pod.labels.get("astray") == "yes"

    def service(self, name: str) -> tuple[str, str, dict[str, Any]]:
        return ("Service", PREFIX + name, {})

    def more_memory(self, last: str | None) -> str | None:
        return {"100Mi": "150Mi", "150Mi": "200Mi"}.get(last or "", last)


class Api:
    """A cluster: pods and services by name; errors to come, by verb."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Pod] = {}
        self.errors: dict[str, list[Exception]] = {}
        self.made_with: dict[str, dict[str, Any]] = {}
        self.created: list[str] = []
        self.deleted: list[tuple[str, float | None]] = []

    def add(self, kind: str, name: str, owner: str = OURS.uid, phase: str = "Pending", **about: Any) -> Pod:
        made = Pod(
            metadata=Metadata(
                name=name,
                uid=f"uid-{len(self.created)}-{name}",
                labels=about.get("labels", labels("j", "worker-0")),
                owner_references=(OwnerReference(uid=owner),),
            ),
            spec=PodSpec(restart_policy="Never", containers=(Container(name=name),)),
            status=PodStatus(phase=phase),
        )
        self.objects[kind, name] = made
        return made

    def _fail(self, verb: str) -> None:
        if self.errors.get(verb):
            raise self.errors[verb].pop(0)

    async def create(self, obj: Any, *, patience_s: float | None = None) -> Metadata:
        await asyncio.sleep(0)
        kind, name, about = obj
        lost = bool(self.errors.get("answer"))
        self._fail("create")
        if (kind, name) in self.objects:
            raise AlreadyExists(f"{name} already exists")
        self.created.append(name)
        self.made_with[name] = about
        made = self.add(kind, name)
        if lost:
            self._fail("answer")
        return made.metadata

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        found = self.objects[kind, name].metadata
        owners = [{"uid": each.uid} for each in found.owner_references or ()]
        return {"metadata": {"name": name, "uid": found.uid, "ownerReferences": owners}}

    async def get_pod(self, name: str) -> Pod:
        self._fail("get")
        if ("Pod", name) not in self.objects:
            raise NotFound(name)
        return self.objects["Pod", name]

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        grace_s: float | None = None,
        uid: str = "",
        patience_s: float | None = None,
    ) -> bool:
        self._fail("delete")
        there = self.objects.get((kind, name))
        if there is None:
            return False
        if uid and there.uid != uid:
            raise Conflict("another uid")
        self.deleted.append((name, grace_s))
        del self.objects[kind, name]
        return True


class Rig:
    """A launcher, its cluster, and a clock that stands still until it is moved."""

    def __init__(self, tasks: asyncio.TaskGroup, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api, self.now = Api(), 0.0
        self.inventory = PodInventory(OURS.uid, PREFIX)
        self.launcher = PodLauncher(self.api, Objects(), self.inventory, tasks, asyncio.Event())
        monkeypatch.setattr(PodLauncher, "_now", lambda _: self.now)
        self.list()

    def list(self) -> None:
        pods = [pod for (kind, _), pod in self.api.objects.items() if kind == "Pod"]
        self.inventory.on_list(self.inventory.begin_list(), pods)

    async def launch(self, *names: str, after_s: float = 1000.0) -> None:
        self.now += after_s
        for name in names:
            self.launcher.begin_launch(name)
        await self.settle()

    async def settle(self) -> None:
        while self.launcher._busy:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self.inventory.check_invariants()


@pytest.fixture
def on_rig(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Rig], Awaitable[None]]], None]:
    def run(test: Callable[[Rig], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.TaskGroup() as tasks:
                await test(Rig(tasks, monkeypatch))

        asyncio.run(main())

    return run


def test_a_worker_is_one_pod_and_a_server_has_a_service_too(on_rig) -> None:
    async def test(rig: Rig) -> None:
        for _ in range(3):
            rig.launcher.begin_launch("worker-0")
            rig.launcher.begin_launch("ps-0")
        await rig.settle()
        assert sorted(rig.api.created) == [PREFIX + "ps-0", PREFIX + "ps-0", PREFIX + "worker-0"]
        assert set(rig.api.objects) == {
            ("Pod", PREFIX + "ps-0"),
            ("Service", PREFIX + "ps-0"),
            ("Pod", PREFIX + "worker-0"),
        }
        assert set(rig.launcher.running()) == {"ps-0", "worker-0"}

    on_rig(test)


def test_pods_that_look_elsewhere_for_their_master_are_not_taken_over(on_rig) -> None:
    async def test(rig: Rig) -> None:
        rig.api.add("Pod", PREFIX + "worker-0", phase="Running", labels=labels("j", "worker-0"))
        rig.api.add(
            "Pod", PREFIX + "worker-1", phase="Running", labels=labels("j", "worker-1") | {"astray": "yes"}
        )
        rig.list()
        rig.launcher.adopt()
        rig.api.errors["delete"] = [PeerUnavailable("down")]
        rig.launcher.tidy()
        await rig.settle()
        assert rig.api.deleted == []
        rig.now += 100
        rig.launcher.tidy()
        await rig.settle()
        assert rig.api.deleted == [(PREFIX + "worker-1", None)]
        rig.list()
        assert [exit_.name for exit_ in rig.launcher.take_exits()] == ["worker-1"]
        assert rig.launcher.running() == ("worker-0",)

    on_rig(test)


def test_a_refused_creation_is_a_note_and_is_tried_less_and_less_often(on_rig) -> None:
    async def test(rig: Rig) -> None:
        rig.api.errors["create"] = [Forbidden("exceeded quota: q")] * 3
        await rig.launch("worker-0")
        assert rig.launcher.running() == ()
        assert rig.launcher.notes() == {"worker-0": "Pending: cannot be created: exceeded quota: q"}
        await rig.launch("worker-0", after_s=0.1)
        assert len(rig.api.errors["create"]) == 2  # too soon
        await rig.launch("worker-0", after_s=0.7)
        assert len(rig.api.errors["create"]) == 1
        await rig.launch("worker-0", after_s=0.7)
        assert len(rig.api.errors["create"]) == 1  # longer than before
        await rig.launch("worker-0", after_s=1.3)
        await rig.launch("worker-0")
        assert rig.launcher.running() == ("worker-0",)
        assert rig.launcher.notes() == {}

    on_rig(test)


def test_what_is_not_wanted_any_more_leaves_no_note(on_rig) -> None:
    async def test(rig: Rig) -> None:
        rig.api.errors["create"] = [Forbidden("no")]
        await rig.launch("worker-0")
        rig.launcher.expect(("worker-1",), 0)
        assert rig.launcher.notes() == {}

    on_rig(test)


def test_a_creation_whose_answer_was_lost_is_found_again(on_rig) -> None:
    async def test(rig: Rig) -> None:
        rig.api.errors["answer"] = [PeerUnavailable("no answer")]
        await rig.launch("worker-0")
        assert rig.launcher.running() == ()
        await rig.launch("worker-0")
        assert rig.launcher.running() == ("worker-0",)
        assert rig.api.created == [PREFIX + "worker-0"]

    on_rig(test)


def test_an_older_masters_pod_goes_before_ours_comes(on_rig) -> None:
    async def test(rig: Rig) -> None:
        rig.api.add("Pod", PREFIX + "worker-0", owner="older", phase="Running")
        await rig.launch("worker-0")
        assert rig.launcher.running() == ()
        assert "older pod" in rig.launcher.notes()["worker-0"]
        await rig.launch("worker-0")  # now it is known: it is asked to go
        assert rig.api.deleted == [(PREFIX + "worker-0", None)]
        rig.list()
        await rig.launch("worker-0")
        assert rig.launcher.running() == ("worker-0",)
        assert rig.launcher.take_exits() == ()

    on_rig(test)


def test_a_strangers_pod_is_left_alone(on_rig) -> None:
    async def test(rig: Rig) -> None:
        rig.api.add("Pod", PREFIX + "worker-0", owner="somebody", labels={"app": "web"})
        await rig.launch("worker-0")
        await rig.launch("worker-0")
        assert rig.api.deleted == []
        assert "is not of this job" in rig.launcher.notes()["worker-0"]

    on_rig(test)


def test_the_ended_pod_of_a_server_goes_before_the_next_one_comes(on_rig) -> None:
    async def test(rig: Rig) -> None:
        rig.api.add("Pod", PREFIX + "ps-0", phase="Failed")
        rig.list()
        assert [gone.name for gone in rig.launcher.take_exits()] == ["ps-0"]
        await rig.launch("ps-0")
        assert rig.launcher.running() == ()
        rig.list()
        await rig.launch("ps-0")
        assert rig.launcher.running() == ("ps-0",)

    on_rig(test)


def test_a_service_of_an_older_master_is_made_anew(on_rig) -> None:
    async def test(rig: Rig) -> None:
        rig.api.add("Service", PREFIX + "ps-0", owner="older")
        await rig.launch("ps-0")
        assert rig.api.objects["Service", PREFIX + "ps-0"].owner_uids == (OURS.uid,)
        assert rig.launcher.running() == ("ps-0",)

    on_rig(test)


def test_a_stop_is_asked_for_until_the_pod_is_gone(on_rig) -> None:
    async def test(rig: Rig) -> None:
        await rig.launch("worker-0")
        rig.api.errors["delete"] = [PeerUnavailable("down")]
        for _ in range(2):
            rig.launcher.begin_stop("worker-0")
            await rig.settle()
        assert rig.api.deleted == []  # too soon after the failure
        rig.now += 10
        for _ in range(3):
            rig.launcher.begin_stop("worker-0")
            await rig.settle()
        assert rig.api.deleted == [(PREFIX + "worker-0", STOP_GRACE_S)]
        assert rig.launcher.running() == ("worker-0",)  # nobody has seen it go
        rig.list()
        assert (rig.launcher.running(), rig.launcher.take_exits()) == ((), ())

    on_rig(test)


def test_what_hangs_has_time_to_say_where_unless_its_node_is_lost(on_rig, monkeypatch) -> None:
    async def test(rig: Rig) -> None:
        await rig.launch("worker-0", "worker-1")
        monkeypatch.setattr(type(rig.inventory), "unreachable", lambda inventory: ("worker-1",))
        for name in ("worker-0", "worker-1"):
            rig.launcher.begin_stop(name, is_hung=True)
        await rig.settle()
        assert rig.api.deleted == [(PREFIX + "worker-0", HUNG_GRACE_S), (PREFIX + "worker-1", STOP_GRACE_S)]

    on_rig(test)


def test_a_pod_that_is_gone_already_needs_no_list(on_rig) -> None:
    async def test(rig: Rig) -> None:
        await rig.launch("worker-0")
        rig.api.objects.clear()
        rig.launcher.begin_stop("worker-0")
        await rig.settle()
        assert rig.launcher.running() == ()

    on_rig(test)


def test_a_worker_out_of_memory_makes_room_for_the_next_up_to_the_cap(on_rig) -> None:
    async def test(rig: Rig) -> None:
        def ends(name: str, had: str) -> list[tuple[str, bool]]:
            state = ContainerState(terminated=Terminated(exit_code=137, reason="OOMKilled"))
            made = rig.api.add("Pod", PREFIX + name, phase="Failed")
            container = Container(name=PREFIX + name, resources=Resources(limits={"memory": had}))
            status = ContainerStatus(name=PREFIX + name, state=state)
            rig.api.objects["Pod", PREFIX + name] = Pod(
                metadata=made.metadata,
                spec=PodSpec(restart_policy="Never", containers=(container,)),
                status=PodStatus(phase="Failed", container_statuses=(status,)),
            )
            rig.list()
            return [(gone.reason, gone.is_remedied) for gone in rig.launcher.take_exits()]

        assert ends("worker-0", "100Mi") == [
            ("killed at its limit of 100Mi: out of memory; the next one gets 150Mi", True)
        ]
        await rig.launch("worker-1", "ps-0")
        assert rig.api.made_with[PREFIX + "worker-1"]["memory"] == "150Mi"
        ends("worker-2", "150Mi")
        assert ends("worker-3", "100Mi")[0][1]
        await rig.launch("worker-4")
        assert rig.api.made_with[PREFIX + "worker-4"]["memory"] == "200Mi"
        assert ends("worker-5", "200Mi") == [("killed at its limit of 200Mi: out of memory", False)]

    on_rig(test)


def test_all_of_a_role_is_deleted_in_order(on_rig, monkeypatch) -> None:
    async def test(rig: Rig) -> None:
        monkeypatch.setattr(launcher_module, "GONE_POLL_S", 0)
        await rig.launch("worker-0", "worker-1", "ps-0")
        rig.api.add("Pod", PREFIX + "worker-2", phase="Failed")
        rig.list()
        async with asyncio.TaskGroup() as both:
            both.create_task(rig.launcher.delete_all("worker", 5.0))
            while any(name.startswith(PREFIX + "worker") for _, name in rig.api.objects):  # noqa: ASYNC110
                await asyncio.sleep(0)
            rig.list()
        assert set(rig.api.objects) == {("Pod", PREFIX + "ps-0"), ("Service", PREFIX + "ps-0")}
        assert {gone.name for gone in rig.launcher.take_exits()} == {"worker-2"}

    on_rig(test)

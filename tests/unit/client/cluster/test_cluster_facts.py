"""What pods and nodes say, in the words of the screens: pure functions, no cluster."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edlz.client.cluster import checks
from edlz.client.cluster.capacity import nodes_of, quotas_of, room_for
from edlz.client.cluster.image_check import image_verdict
from edlz.client.cluster.index import Place, forget_place, list_places, places_of, remember_place
from edlz.client.cluster.job_view import view_of
from edlz.client.cluster.pod_facts import facts_of, warnings_by_pod
from edlz.client.images.daemon import LocalImage
from edlz.client.screen.jobs import job_object
from edlz.client.screen.spans import plain
from edlz.client.screen.status import status_screen
from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.cluster.clock import ClusterClock
from edlz.k8s.cluster.names import CONFIG, STATUS, pod_name
from edlz.services.errors import PeerUnavailable
from edlz.services.protocol.job_status import FailureView, JobStatus, PartitionView, WorkerView

AT = Place(name="mnist", namespace="research", settings="num_workers: 3\n")
STATUS_SAID = JobStatus(
    name="mnist",
    state="Training",
    mode="sync",
    slots=2,
    started_at=100.0,
    now=160.0,
    workers=(
        WorkerView(id="0", state="training"),
        WorkerView(id="1", state="starting", note="replaces worker-9"),
    ),
    partitions=(PartitionView(id="0", state="serving", version=3),),
)


def pod(name: str, phase: str = "Running", *, said: JobStatus | None = None, **status: Any) -> Pod:
    state = {"running": {}} if phase == "Running" else {}
    containers = [
        {"name": "c", "image": "edlz:mnist", "state": status.pop("state", state), **status.pop("more", {})}
    ]
    annotations = {CONFIG: "num_workers: 2\nnum_epochs: 5\n"}
    if said is not None:
        annotations[STATUS] = msgspec.json.encode(said).decode()
    record = {
        "metadata": {
            "name": pod_name("mnist", name),
            "uid": name,
            "annotations": annotations,
            **status.pop("meta", {}),
        },
        "spec": {"nodeName": status.pop("node", "a")},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }
    return msgspec.convert(record, Pod)


ENDED = {
    "restartCount": 1,
    "lastState": {
        "terminated": {
            "exitCode": 2,
            "message": "09:12 a line\nerror: --seed=x is no number\nhelp: e.g. --seed=1\n",
        }
    },
}


@pytest.mark.parametrize(
    ("seen", "waits_for"),
    [
        (pod("worker-0"), ""),
        (pod("worker-0", "Pending", node=""), "a node"),
        (
            pod("worker-0", "Pending", state={"waiting": {"reason": "ContainerCreating"}}),
            "its container is made, its image pulled",
        ),
        (
            pod(
                "worker-0",
                "Pending",
                state={"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}},
            ),
            "CreateContainerConfigError: no secret",
        ),
        (
            pod(
                "master",
                state={"waiting": {"reason": "CrashLoopBackOff"}},
                more={"restartCount": 3, "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}}},
            ),
            "its container is started again after exit code 2, 3 times so far",
        ),
        (
            pod("master", state={"waiting": {"reason": "CrashLoopBackOff"}}, more=ENDED),
            "its container is started again after exit code 2, once so far: --seed=x is no number",
        ),
        (
            pod("master", state={"terminated": {"exitCode": 2, "message": "error: no seed"}}),
            "its container is started again after exit code 2: no seed",
        ),
    ],
)
def test_what_a_pod_waits_for(seen: Pod, waits_for: str) -> None:
    assert facts_of("mnist", seen).waits_for == waits_for


def test_a_warning_is_the_reason_where_the_pod_has_none() -> None:
    about = {"kind": "Pod", "name": "elasticdl-mnist-worker-0", "uid": "worker-0"}
    before = {**about, "uid": "that of the pod before it"}
    events = [
        {
            "type": "Warning",
            "reason": "FailedMount",
            "message": "old",
            "lastTimestamp": "2026-01-01T00:00:01Z",
            "involvedObject": about,
        },
        {
            "type": "Warning",
            "reason": "FailedMount",
            "message": 'claim "x" not found',
            "lastTimestamp": "2026-01-01T00:00:02Z",
            "involvedObject": about,
        },
        {
            "type": "Normal",
            "reason": "Pulled",
            "message": "",
            "lastTimestamp": "2026-01-01T00:00:03Z",
            "involvedObject": about,
        },
        {
            "type": "Warning",
            "reason": "FailedMount",
            "message": "of another life",
            "lastTimestamp": "2026-01-01T00:00:04Z",
            "involvedObject": before,
        },
    ]
    waiting = pod("worker-0", "Pending", state={"waiting": {"reason": "ContainerCreating"}})
    found = facts_of("mnist", waiting, warnings_by_pod(events))
    assert found.waits_for == 'FailedMount: claim "x" not found'
    assert (
        facts_of("mnist", waiting, warnings_by_pod(events[-1:])).waits_for != "FailedMount: of another life"
    )


def test_an_event_tells_the_cause_of_a_pull_that_the_container_does_not() -> None:
    about = {"kind": "Pod", "name": "elasticdl-mnist-worker-0", "uid": "worker-0"}
    texts = (
        'Failed to pull image "edlz:mnst": rpc error: code = NotFound desc = edlz:mnst: not found',
        "Error: ErrImagePull",
        "Error: ImagePullBackOff",
    )
    events = [
        {"type": "Warning", "reason": "Failed", "message": text, "involvedObject": about} for text in texts
    ]
    reason = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "edlz:mnst"'}
    waiting = pod("worker-0", "Pending", state={"waiting": reason})
    found = facts_of("mnist", waiting, warnings_by_pod(events))
    assert found.waits_for == "image edlz:mnist cannot be pulled: edlz:mnst: not found"


def test_the_end_of_a_pod() -> None:
    oom = pod("worker-0", "Failed", state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    assert facts_of("mnist", oom).end == "it ran out of memory"
    condition = {"type": "DisruptionTarget", "status": "True"}
    gone = pod("worker-0", "Failed", state={"terminated": {"exitCode": 143}}, conditions=[condition])
    assert facts_of("mnist", gone).end == "preempted, or its node was lost"


# ---------------------------------------------------------------- a job


def test_a_job_is_what_its_master_says_and_its_pods() -> None:
    pending = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "message": "0/1 nodes are available: 1 Insufficient cpu.",
            }
        ]
    }
    pods = [
        pod("worker-10", "Pending", node="", **pending),
        pod("master", said=STATUS_SAID),
        pod("worker-1", "Pending", node="", **pending),
        pod("worker-0"),
        pod("ps-0"),
        pod("worker-8", "Failed"),
    ]
    seen = view_of(AT, "lab", pods)
    assert [(worker.id, worker.note) for worker in seen.status.workers] == [
        ("0", ""),
        ("1", "Pending: 0/1 nodes: Insufficient cpu; replaces worker-9"),
        ("10", "Pending: 0/1 nodes: Insufficient cpu"),
    ]
    assert [view.id for view in seen.status.partitions] == ["0"]
    assert (seen.is_live, seen.note, seen.asked_workers) == (True, "", 2)
    assert seen.trouble == "worker-1 Pending: 0/1 nodes: Insufficient cpu"
    assert (seen.where, seen.word) == ("k8s/research", "mnist -n research")


@pytest.mark.parametrize(
    ("master", "state", "is_live"),
    [
        (pod("master", "Pending", node=""), "Pending", True),
        (pod("master"), "Starting", True),
        (pod("master", said=STATUS_SAID), "Training", True),
        (
            pod("master", said=STATUS_SAID, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            "Stopping",
            True,
        ),
        (
            pod("master", "Succeeded", said=msgspec.structs.replace(STATUS_SAID, state="Failed")),
            "Failed",
            False,
        ),
        (pod("master", said=msgspec.structs.replace(STATUS_SAID, state="Succeeded")), "Succeeded", False),
        (pod("master", "Succeeded", said=STATUS_SAID), "Stopped", False),
        (pod("master", "Succeeded"), "Failed", False),
        (pod("master", "Failed", said=STATUS_SAID), "Failed", False),
    ],
)
def test_the_state_of_a_job(master: Pod, state: str, is_live: bool) -> None:
    seen = view_of(AT, "", [master])
    assert (seen.status.state, seen.is_live) == (state, is_live)


def test_a_master_that_cannot_begin_says_why() -> None:
    waiting = pod("master", state={"waiting": {"reason": "CrashLoopBackOff"}}, more=ENDED)
    seen = view_of(AT, "", [waiting])
    assert seen.is_master_in_vain
    assert seen.note == (
        "the master waits: its container is started again after exit code 2, once so far: "
        "--seed=x is no number; e.g. --seed=1"
    )
    seen = view_of(AT, "", [pod("master", more=ENDED)])
    assert not seen.is_master_in_vain
    assert seen.note == "the master starts again; it ended: --seed=x is no number; e.g. --seed=1"
    ended = {"terminated": ENDED["lastState"]["terminated"]}  # type: ignore[index]
    status = view_of(AT, "", [pod("master", "Failed", state=ended)]).status
    assert status.failure == FailureView(
        text="its master ended: exit code 2: --seed=x is no number", help="e.g. --seed=1", exit_code=2
    )
    spoken = pod("master", said=STATUS_SAID, state={"waiting": {"reason": "CrashLoopBackOff"}}, more=ENDED)
    assert not view_of(AT, "", [spoken]).is_master_in_vain, "it can go on from its journal"


def test_workers_are_as_old_as_their_pods() -> None:
    created = {"creationTimestamp": "1970-01-01T00:01:40Z"}
    pods = [
        pod("master", said=STATUS_SAID, meta=created),
        pod("worker-0", meta=created),
        pod("worker-7", meta=created),
    ]
    seen = view_of(AT, "", pods)
    assert [(worker.id, worker.started_at) for worker in seen.status.workers] == [
        ("0", 100.0),
        ("1", 0.0),
        ("7", 100.0),
    ]
    screen = [plain([line]) for line in status_screen(seen, 820.0)]
    heading = next(line for line in screen if line.startswith("WORKER"))
    assert heading.split() == ["WORKER", "STATE", "TASK", "REC/S", "AGE", "NOTE"]
    (first,) = [line.split() for line in screen if line.startswith("worker-0")]
    assert first == ["worker-0", "training", "-", "-", "12m"]
    worker, other, _ = job_object(seen)["workers"]
    assert (worker["started_at"], other["started_at"]) == (100.0, None)


def test_what_is_no_pod_has_no_age() -> None:
    seen = view_of(AT, "", [pod("master", said=STATUS_SAID)])
    assert "AGE" not in "".join(plain([line]) for line in status_screen(seen, 820.0))


def test_a_note_of_a_parameter_server_is_in_the_table() -> None:
    pending = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]}
    pods = [pod("master", said=STATUS_SAID), pod("ps-0", "Pending", node="", **pending)]
    screen = [plain([line]) for line in status_screen(view_of(AT, "", pods), 820.0)]
    place = next(number for number, line in enumerate(screen) if line.startswith("PS"))
    assert screen[place].split()[-1] == "NOTE"
    assert screen[place + 1].rstrip().endswith("Pending: no room")


def test_scripts_see_where_a_job_is() -> None:
    found = job_object(view_of(AT, "lab", [pod("master", said=STATUS_SAID)]))["job"]
    assert (found["where"], found["context"], found["namespace"]) == ("k8s/research", "lab", "research")


def test_a_status_that_cannot_be_read() -> None:
    master = msgspec.structs.replace(
        pod("master"),
        metadata=msgspec.convert(
            {"name": "elasticdl-mnist-master", "annotations": {STATUS: "{"}}, type(pod("master").metadata)
        ),
    )
    seen = view_of(AT, "", [master])
    assert seen.status.state == "Starting"
    assert not seen.has_figures


# ---------------------------------------------------------------- room


def node(name: str, cpu: str, memory: str = "8Gi", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": memory}},
    }


def bound(where: str, cpu: str, phase: str = "Running") -> dict[str, Any]:
    container = {"resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"nodeName": where, "containers": [container]}, "status": {"phase": phase}}


def test_how_many_workers_fit() -> None:
    nodes = [
        node("a", "4"),
        node("b", "2"),
        node("c", "64", unschedulable=True),
        node("d", "64", taints=[{"effect": "NoSchedule"}]),
    ]
    pods = [bound("a", "1500m"), bound("b", "2", "Succeeded"), bound("c", "1"), {"spec": {"containers": []}}]
    room = room_for(nodes_of(nodes, pods), [("master", {"cpu": "500m"})], {"cpu": "1", "memory": "1Gi"}, 8)
    assert (room.workers, room.lacking, room.impossible) == (4, "cpu", None)


def test_a_quota_is_left_to_the_servers_first() -> None:
    def quota(used: str) -> list[dict[str, Any]]:
        hard = {"pods": "4", "requests.cpu": "100", "services": "1"}
        return [{"metadata": {"name": "q"}, "status": {"hard": hard, "used": {"pods": used}}}]

    first = [("master", {"cpu": "1"}), ("ps", {"cpu": "1"})]
    for used, workers, is_master_in in (("0", 2, True), ("2", 0, True), ("3", 0, False)):
        room = room_for(nodes_of([node("a", "64")], []), first, {"cpu": "1"}, 4, quotas_of(quota(used)))
        assert (room.workers, room.is_master_in, room.lacking) == (workers, is_master_in, "quota q: pods")
    room = room_for(nodes_of([node("a", "64")], []), first, {"cpu": "60"}, 1, quotas_of(quota("0")))
    assert (room.workers, room.lacking) == (1, "")


def test_what_no_node_has() -> None:
    room = room_for(nodes_of([node("a", "4")], []), [], {"cpu": "1", "memory": "16Gi"}, 2)
    assert room.impossible == ("worker", "memory", "16Gi", "8Gi")
    assert (
        room_for(
            nodes_of([node("a", "4")], [bound("a", "4")]), [("ps", {"cpu": "1"})], {"cpu": "1"}, 2
        ).is_master_in
        is False
    )


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(0, 20), st.integers(1, 4))
def test_no_more_fits_than_there_is(sizes: list[int], workers: int, cpu: int) -> None:
    nodes = nodes_of([node(str(place), str(size)) for place, size in enumerate(sizes)], [])
    room = room_for(nodes, [], {"cpu": str(cpu)}, workers)
    assert room.workers == (0 if room.impossible else min(workers, sum(size // cpu for size in sizes)))
    assert all(one.free["cpu"] >= 0 for one in nodes)


# ---------------------------------------------------------------- the image


@pytest.mark.parametrize(
    ("here", "mark", "text"),
    [
        (None, "ok", "edlz:mnst; its pull is seen when the master starts"),
        (LocalImage("linux/amd64"), "ok", "edlz:mnst is amd64; its pull is seen when the master starts"),
        (LocalImage("linux/arm64"), "no", "edlz:mnst is arm64, the nodes are amd64"),
        (LocalImage(""), "ok", "edlz:mnst; its pull is seen when the master starts"),
        (
            LocalImage("", ("edlz:mnist",)),
            "warn",
            "edlz:mnst is not on this machine, edlz:mnist is; its pull is seen when the master starts",
        ),
    ],
)
def test_what_is_known_of_an_image(here: LocalImage | None, mark: str, text: str) -> None:
    assert image_verdict("edlz:mnst", here, {"amd64"}, "Always")[:2] == (mark, text)


# ---------------------------------------------------------------- the index


def test_the_index(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path))
    first = Place(name="mnist", namespace="a", context="arn:aws:eks:eu/x", submitted_at=1.0)
    second = Place(name="mnist", namespace="b", context="lab", submitted_at=2.0)
    other = Place(name="other", namespace="a", submitted_at=1.0)
    for place in (first, second, other, first):
        remember_place(place)
    assert places_of("mnist") == [second, first]
    assert sorted(place.word for place in list_places()) == ["mnist -n a", "mnist -n b", "other -n a"]
    forget_place(second)
    forget_place(second)
    assert places_of("mnist") == [first]
    assert places_of("../mnist") == []
    (tmp_path / "cluster-jobs" / "other" / "x.json").write_text("{")
    assert places_of("other") == [other]


def test_nothing_of_kubernetes_is_imported_for_jobs_here(tmp_path: Any) -> None:
    code = (
        "import sys; from edlz.client.cli import main; main(['ls']); main(['status', 'x']);"
        "print([name for name in ('kubernetes', 'aiohttp', 'edlz.k8s') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "EDLZ_HOME": str(tmp_path)},
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("about", "mark"), [("room", "later"), ("image", "later"), ("volume", "no")])
@pytest.mark.parametrize("is_slow", [True, False])
def test_what_can_only_advise_refuses_nothing_that_it_did_not_see(
    about: str, mark: str, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LIMIT_S", 0.01)

    async def check() -> list[checks.Check]:
        if is_slow:
            await asyncio.Event().wait()
        raise PeerUnavailable("the cluster answers 504: too many pods")

    (found,) = asyncio.run(checks._within(about, check))
    assert (found.mark, found.about) == (mark, about)
    assert found.text.startswith("no answer within" if is_slow else "the cluster answers 504")


def test_settings_of_submissions_are_for_their_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path))
    remember_place(AT)
    assert (tmp_path / "cluster-jobs").stat().st_mode & 0o777 == 0o700
    assert places_of("mnist") == [AT]


def test_times_are_shown_by_the_clock_of_whoever_looks() -> None:
    said = msgspec.structs.replace(STATUS_SAID, started_at=1000.0, now=1060.0)
    seen = view_of(AT, "", [pod("master", said=said)])
    assert seen.as_of(1065.0).note == "", "by the clock that its master goes by"
    here = seen.by_our_clock(70.0).status
    assert (here.started_at, here.now) == (930.0, 990.0)
    assert [worker.started_at for worker in here.workers] == [0.0] * len(here.workers), "not known"
    assert seen.by_our_clock(1.4) is seen, "an answer tells no more than seconds"


def test_the_clock_of_a_cluster_is_that_of_its_answers() -> None:
    clock = ClusterClock()
    clock.on_answer("Thu, 01 Jan 1970 00:01:40 GMT", now=30.0)
    assert clock.ahead_s == 70.5
    for odd in ("", "yesterday", "Thu, 99 Jan 1970 00:01:40 GMT"):
        clock.on_answer(odd, now=30.0)
    assert clock.ahead_s == 70.5

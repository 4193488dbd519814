"""What the state of a pod says: how it ended, or why it does not run."""

import datetime

import pytest

from edlz.k8s.cluster.api_records import (
    Condition,
    Container,
    ContainerState,
    ContainerStatus,
    Metadata,
    Pod,
    PodSpec,
    PodStatus,
    Resources,
    Terminated,
    Waiting,
)
from edlz.k8s.pods.pod_exits import exit_of, has_ended, is_behind, note_of, vanished
from edlz.k8s.pods.wait_reasons import LONGEST
from edlz.services.supervision.post_mortem import Cause, cause_of

NAME = "elasticdl-j-worker-3"


def pod(
    phase: str = "Running",
    *,
    terminated: Terminated | None = None,
    waiting: Waiting | None = None,
    condition: Condition | None = None,
    is_deleted: bool = False,
    reason: str = "",
    message: str = "",
    memory: str = "",
) -> Pod:
    state = ContainerState(terminated=terminated, waiting=waiting)
    stamp = datetime.datetime.fromisoformat("2026-11-27T21:11:46+00:00") if is_deleted else None
    return Pod(
        metadata=Metadata(name=NAME, uid="u", deletion_timestamp=stamp),
        spec=PodSpec(
            restart_policy="Never",
            containers=(
                Container(name="sidecar"),
                Container(name=NAME, image="edlz:mnst", resources=Resources(limits={"memory": memory})),
            ),
        ),
        status=PodStatus(
            phase=phase,
            reason=reason,
            message=message,
            conditions=(condition,) if condition else None,
            container_statuses=(ContainerStatus(name="sidecar"), ContainerStatus(name=NAME, state=state)),
        ),
    )


def failed(code: int, reason: str = "Error", message: str = "", **about: object) -> Pod:
    return pod("Failed", terminated=Terminated(exit_code=code, reason=reason, message=message), **about)


def disruption(reason: str, message: str = "") -> Condition:
    return Condition(type="DisruptionTarget", status="True", reason=reason, message=message)


@pytest.mark.parametrize(
    ("state", "cause", "words"),
    [
        (failed(0, "Completed"), Cause.SUCCEEDED, "exit code 0"),
        (pod("Succeeded"), Cause.SUCCEEDED, "exit code 0"),
        (failed(1), Cause.ERROR, "exit code 1"),
        (failed(1, message="Traceback\nValueError: no"), Cause.ERROR, "exit code 1: ValueError: no"),
        (failed(2, message="a line\nerror: no seed\nhelp: x"), Cause.ERROR, "exit code 2: no seed"),
        (failed(139), Cause.ERROR, "exit code 139 (SIGSEGV)"),
        (failed(137), Cause.KILLED, "exit code 137 (SIGKILL)"),
        (failed(143), Cause.PREEMPTED, "exit code 143 (SIGTERM)"),
        (failed(128, "StartError", "exec: no such file"), Cause.ERROR, "StartError: exec: no such file"),
        (failed(137, "OOMKilled", memory="2048Mi"), Cause.OUT_OF_MEMORY, "at its limit of 2048Mi"),
        (failed(143, condition=disruption("PreemptionByScheduler")), Cause.PREEMPTED, "higher priority"),
        (failed(1, condition=disruption("PreemptionByScheduler")), Cause.PREEMPTED, "higher priority"),
        (failed(137, condition=disruption("DeletionByTaintManager")), Cause.PREEMPTED, "its node was lost"),
        (failed(143, condition=disruption("EvictionByEvictionAPI")), Cause.PREEMPTED, "drained"),
        (failed(143, condition=disruption("NewReason")), Cause.PREEMPTED, "(NewReason)"),
        (
            failed(137, condition=disruption("TerminationByKubelet", "low on memory")),
            Cause.PREEMPTED,
            "low on",
        ),
        (pod("Failed", reason="Evicted", message="low on disk"), Cause.PREEMPTED, "evicted by its node: low"),
        (pod("Failed", reason="NodeLost"), Cause.PREEMPTED, "its node was lost"),
        (
            pod("Failed", reason="OutOfcpu", message="no cpu"),
            Cause.PREEMPTED,
            "refused by its node: OutOfcpu",
        ),
        (failed(143, is_deleted=True), Cause.PREEMPTED, "its pod was deleted"),
        (failed(137, is_deleted=True), Cause.PREEMPTED, "its pod was deleted"),
        (failed(1, is_deleted=True), Cause.ERROR, "exit code 1"),
    ],
)
def test_how_a_pod_ended(state: Pod, cause: Cause, words: str) -> None:
    exit_ = exit_of(state, "worker-3", 5)
    assert exit_ is not None
    assert (exit_.name, exit_.launch) == ("worker-3", 5)
    assert cause_of(exit_) is cause
    assert words in exit_.reason


def test_a_pod_that_is_gone_without_a_word_was_lost_with_its_node_or_deleted() -> None:
    assert cause_of(vanished(None, "ps-0", 1)) is Cause.PREEMPTED
    preempted = pod(condition=disruption("PreemptionByScheduler"), is_deleted=True)
    assert "higher priority" in vanished(preempted, "ps-0", 1).reason
    assert vanished(pod(is_deleted=True), "ps-0", 1).reason == "its pod was deleted"


def test_what_waits_or_runs_has_not_ended() -> None:
    for state in (pod(), pod("Pending"), pod(is_deleted=True), pod("Weird"), pod("Unknown")):
        assert exit_of(state, "worker-3", 1) is None


def test_a_service_whose_container_ended_has_ended_whatever_a_sidecar_does() -> None:
    assert has_ended(pod("Running", terminated=Terminated(exit_code=1)))


@pytest.mark.parametrize(
    ("message", "note"),
    [
        (
            "0/6 nodes are available: 6 Insufficient cpu. preemption: 0/6 nodes are available: 6 No victims.",
            "Pending: 0/6 nodes: Insufficient cpu",
        ),
        (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {a: b}. no new claims",
            "Pending: 0/2 nodes: 1 Insufficient cpu, 1 node(s) had untolerated taint {a: b}",
        ),
        ("0/2 nodes are available: 2 Insufficient memory", "Pending: 0/2 nodes: Insufficient memory"),
        ("running PreBind plugin: no", "Pending: running PreBind plugin: no"),
        ("", "Pending: Unschedulable"),
    ],
)
def test_a_pod_without_room_says_what_is_lacking(message: str, note: str) -> None:
    lacking = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    assert note_of(pod("Pending", condition=lacking)) == note


def test_a_pod_that_cannot_start_says_why() -> None:
    pull = Waiting(reason="ErrImagePull", message="rpc error: code = NotFound desc = not found")
    assert note_of(pod("Pending", waiting=pull)) == "Pending: image edlz:mnst cannot be pulled: not found"
    later = Waiting(reason="ImagePullBackOff", message='Back-off pulling image "edlz:mnst"')
    assert note_of(pod("Pending", waiting=later)) == "Pending: image edlz:mnst cannot be pulled"
    config = Waiting(reason="CreateContainerConfigError", message='secret "k" not found')
    assert 'CreateContainerConfigError: secret "k" not found' in note_of(pod("Pending", waiting=config))
    assert note_of(pod()) == ""
    assert note_of(pod("Pending", waiting=pull, is_deleted=True)) == ""
    assert note_of(failed(1)) == ""
    note = note_of(pod("Pending", waiting=Waiting(reason="X", message="word " * 200)))
    assert len(note) <= len("Pending: ") + LONGEST


def test_a_state_that_was_left_is_behind() -> None:
    assert is_behind(pod("Pending"), pod())
    assert is_behind(pod(), pod(is_deleted=True))
    assert is_behind(pod(is_deleted=True), pod(condition=disruption("X")))
    assert is_behind(pod(), failed(1))
    assert not is_behind(pod(), pod())
    assert not is_behind(failed(1), pod(is_deleted=False))

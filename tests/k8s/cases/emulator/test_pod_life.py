"""The life of a pod on its node, in a core: no process, no clock."""

import signal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.nodes.pod_life import Discard, Happening, Instruction, PodLife, Remove, Signal, Start, Times

Object = dict[str, Any]
NOW = 1_000.0


class Node:
    """What the core needs of a kubelet: it carries out instructions at once, and nobody ends by himself."""

    def __init__(self, images: set[str] | None = None, **spec: Any) -> None:
        container = {"name": "c", "image": "x", "imagePullPolicy": spec.pop("pull", "IfNotPresent")}
        self.pod: Object = {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [container], **spec},
        }
        self.images = {"x"} if images is None else images
        self.now = NOW
        self.life = PodLife(self.pod, "127.1.2.3", "127.1.0.1", NOW, self._problem, Times())
        self.did: list[Instruction] = []
        self.phases: list[str] = []

    def _problem(self, image: str, policy: str) -> str | None:
        if image in self.images:
            return None
        return "ErrImageNeverPull" if policy == "Never" else "ErrImagePull"

    def step(self) -> list[Instruction]:
        done = self.life.step(self.now)
        for instruction in done:
            if isinstance(instruction, Start):
                done += self.life.started(instruction.container, f"id-{instruction.attempt}", self.now)
        self.did += done
        self.note_phase()
        return done

    def note_phase(self) -> None:
        if self.phases[-1:] != [self.life.phase]:
            self.phases.append(self.life.phase)

    def settle(self) -> None:
        """Take all steps that are due now."""
        for _ in range(20):
            due = self.life.wake_at()
            if due is None or due > self.now:
                return
            self.step()
        raise AssertionError("the core does not come to rest")

    def wait(self) -> None:
        """Let the time pass until the next step is due."""
        due = self.life.wake_at()
        assert due is not None
        self.now = max(due, self.now)
        self.settle()

    def exit(self, code: int, reason: str | None = None) -> None:
        self.life.exited("c", code, self.now, reason)
        self.note_phase()
        self.settle()

    def delete(self, grace_s: int) -> None:
        self.pod["metadata"] |= {"deletionTimestamp": "t", "deletionGracePeriodSeconds": grace_s}
        self.life.update(self.pod, self.now)
        self.settle()

    def signals(self) -> list[signal.Signals]:
        return [one.number for one in self.did if isinstance(one, Signal)]

    @property
    def container(self) -> Object:
        status: Object = self.life.status(self.now)["containerStatuses"][0]
        return status

    def reasons(self) -> list[str]:
        return [one.reason for one in self.did if isinstance(one, Happening)]


def test_a_pod_that_never_restarts_runs_once() -> None:
    node = Node(restartPolicy="Never")
    node.settle()
    assert node.life.status(NOW)["podIP"] == "127.1.2.3"
    assert node.container["state"] == {"running": {"startedAt": "1970-01-01T00:16:40Z"}}
    node.exit(3)
    assert node.phases == ["Pending", "Running", "Failed"]
    ended = node.container["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert node.life.wake_at() is None


def test_success_is_not_restarted_on_failure() -> None:
    node = Node(restartPolicy="OnFailure")
    node.settle()
    node.exit(0)
    assert node.phases[-1] == "Succeeded"
    assert node.container["state"]["terminated"]["reason"] == "Completed"


def test_restarts_back_off() -> None:
    node = Node(restartPolicy="OnFailure")
    node.settle()
    node.exit(137, "OOMKilled")
    assert node.container["restartCount"] == 1, "the first restart is immediate"
    assert node.container["lastState"]["terminated"]["reason"] == "OOMKilled"
    waits = []
    for _ in range(3):
        node.exit(1)
        assert node.container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        since = node.now
        node.wait()
        assert "running" in node.container["state"]
        waits.append(node.now - since)
    assert waits == [0.5, 1.0, 2.0]
    assert node.phases[-1] == "Running"
    assert node.container["restartCount"] == 4


def test_the_end_of_a_container_is_shown_before_its_restart() -> None:
    node = Node(restartPolicy="Always")
    node.settle()
    node.life.exited("c", 0, node.now)
    node.step()
    assert "terminated" in node.container["state"]
    node.settle()
    assert "running" in node.container["state"]


def test_a_pod_ends_when_its_time_is_over() -> None:
    node = Node(restartPolicy="OnFailure", activeDeadlineSeconds=5, terminationGracePeriodSeconds=2)
    node.settle()
    began = node.now
    node.wait()
    assert (node.now - began, node.signals()) == (5.0, [signal.SIGTERM])
    node.exit(1)
    assert node.phases == ["Pending", "Running", "Failed"], "its container is not started again"
    status = node.life.status(node.now)
    assert (status["reason"], status["phase"]) == ("DeadlineExceeded", "Failed")
    assert node.container["state"]["terminated"]["exitCode"] == 1
    assert node.life.wake_at() is None
    assert not any(isinstance(one, Remove) for one in node.did), "its object stays"
    node.delete(0)
    assert any(isinstance(one, Remove) for one in node.did)


def test_who_does_not_end_in_time_is_killed() -> None:
    node = Node(activeDeadlineSeconds=5, terminationGracePeriodSeconds=2)
    node.settle()
    node.wait()
    node.wait()
    assert node.signals() == [signal.SIGTERM, signal.SIGKILL]


def test_the_time_of_a_pod_that_runs_can_be_limited() -> None:
    node = Node(restartPolicy="OnFailure")
    node.settle()
    node.now += 60
    node.pod["spec"]["activeDeadlineSeconds"] = 1
    node.life.update(node.pod, node.now)
    node.settle()
    assert node.signals() == [signal.SIGTERM]
    node.exit(1)
    assert node.phases[-1] == "Failed"


def test_a_deletion_sends_term_then_kill_and_shows_the_end_before_the_object_goes() -> None:
    node = Node()
    node.settle()
    node.delete(3)
    assert node.signals() == [signal.SIGTERM]
    node.wait()
    assert (node.now, node.signals()) == (NOW + 3, [signal.SIGTERM, signal.SIGKILL])
    node.life.exited("c", 137, node.now)
    node.step()
    assert (node.life.phase, Remove() in node.did) == ("Failed", False)
    node.settle()
    assert node.did.count(Remove()) == 1
    node.life.removed(node.now)
    node.settle()
    assert node.did[-1] == Discard()


def test_a_shorter_grace_counts_and_a_longer_does_not() -> None:
    node = Node()
    node.settle()
    node.delete(30)
    node.delete(5)
    node.delete(60)
    assert node.life.wake_at() == NOW + 5


def test_a_pod_that_is_removed_by_force_is_killed_soon() -> None:
    node = Node()
    node.settle()
    node.life.removed(node.now)
    node.settle()
    assert node.signals() == [signal.SIGTERM]
    node.wait()
    assert node.signals()[-1] == signal.SIGKILL
    node.exit(137)
    assert node.did[-1] == Discard()


def test_a_pod_deleted_in_its_back_off_has_failed() -> None:
    node = Node()
    node.settle()
    node.exit(1)
    node.exit(1)
    node.delete(30)
    assert node.phases[-1] == "Failed"
    assert Remove() in node.did


def test_a_finalizer_does_not_keep_the_kubelet_busy() -> None:
    node = Node(restartPolicy="Never")
    node.settle()
    node.exit(0)
    node.delete(30)
    assert node.did.count(Remove()) == 1
    assert node.life.wake_at() is None


def test_unknown_images_are_tried_again() -> None:
    node = Node(images=set())
    node.settle()
    assert node.container["state"]["waiting"]["reason"] == "ErrImagePull"
    node.wait()
    assert node.container["state"]["waiting"]["reason"] == "ImagePullBackOff"
    node.images.add("x")
    node.wait()
    assert node.phases == ["Pending", "Running"]
    node = Node(images=set(), pull="Never")
    node.settle()
    assert node.container["state"]["waiting"]["reason"] == "ErrImageNeverPull"


def test_what_is_missing_is_said_once_and_tried_again() -> None:
    node = Node()
    node.life.step(NOW)
    for _ in range(2):
        assert Start(container="c", attempt=0) in node.life.step(node.now)
        said = node.life.not_started("c", "ContainerCreating", 'secret "k" not found', node.now)
        assert len(said) == (node.now == NOW)
        node.now += Times().retry_s
    assert node.life.phase == "Pending"


def test_init_containers_come_first() -> None:
    node = Node(initContainers=[{"name": "i", "image": "x"}])
    node.settle()
    assert (node.life.runs("i"), node.life.runs("c"), node.life.phase) == (True, False, "Pending")
    node.life.exited("i", 0, node.now)
    node.settle()
    assert (node.life.runs("c"), node.life.phase) == (True, "Running")


@given(st.data(), st.sampled_from(["Always", "OnFailure", "Never"]))
def test_every_deleted_pod_goes_and_nothing_of_it_runs_on(data: st.DataObject, policy: str) -> None:
    node = Node(restartPolicy=policy)
    for _ in range(data.draw(st.integers(0, 12))):
        action = data.draw(st.sampled_from(["settle", "wait", "exit", "delete"]))
        if action == "settle":
            node.settle()
        elif action == "wait" and node.life.wake_at() is not None:
            node.wait()
        elif action == "exit" and node.life.runs("c"):
            node.exit(data.draw(st.sampled_from([0, 1, 137])))
        elif action == "delete":
            node.delete(data.draw(st.integers(0, 5)))
        assert Discard() not in node.did
    node.delete(1)
    if node.life.runs("c"):
        if node.signals()[-1] != signal.SIGKILL:
            node.wait()
        assert node.signals()[-1] == signal.SIGKILL
        node.exit(137)
    assert Remove() in node.did
    node.life.removed(node.now)
    node.settle()
    assert node.did[-1] == Discard()
    assert node.life.wake_at() is None

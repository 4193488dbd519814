"""What tests may ask of every cluster, emulated or real."""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tests.k8s.cluster import TestCluster

__all__ = ["AnyCluster", "make_claim", "wait_for"]

_T = TypeVar("_T")
Object = dict[str, Any]
Objects = list[Object]
WAIT_S = 120.0
_POLL_S = 0.02


def wait_for(condition: Callable[[], _T], what: str, timeout_s: float = WAIT_S) -> _T:
    """Return the condition's first true value; fail with `what` when it does not come."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(_POLL_S)
    raise AssertionError(f"not within {timeout_s:.0f} s: {what}")


def make_claim(name: str, size: str = "1Gi") -> Object:
    """Return a volume claim."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name}, "spec": spec}


class AnyCluster(ABC):
    """A namespace in a cluster. Objects are plain dictionaries, resources are named as in URLs (`pods`).

    Attributes
    ----------
    namespace : str
    image : str
        One that has Python and edlz.
    is_emulated : bool
        Whether there is power over nodes and containers, see `emulated`.
    """

    namespace: str
    image: str
    is_emulated: bool

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """A kubeconfig whose context names the namespace."""

    @abstractmethod
    def emulated(self) -> "TestCluster":
        """Return the emulated cluster; skip the test on a real one."""

    @abstractmethod
    def create(self, resource: str, obj: Object) -> Object:
        """Create an object, in the namespace if it has one."""

    @abstractmethod
    def find(self, resource: str, name: str) -> Object | None:
        """Return an object, or None if there is none."""

    @abstractmethod
    def list(self, resource: str, labels: str = "") -> Objects:
        """Return the objects that a label selector finds."""

    @abstractmethod
    def delete(self, resource: str, name: str, grace_s: int | None = None) -> None:
        """Begin to delete an object."""

    @abstractmethod
    def log(self, pod: str, container: str | None = None, *, previous: bool = False) -> str:
        """Return what a container has printed."""

    def events(self, pod: str) -> Objects:
        """Return the events about a pod, oldest first."""
        found = [one for one in self.list("events") if one["involvedObject"]["name"] == pod]
        return sorted(found, key=lambda one: int(one["metadata"]["resourceVersion"]))

    @abstractmethod
    def check(self) -> None:
        """Fail if the cluster itself has failed."""

    # -- waiting

    def wait_for(self, condition: Callable[[], _T], what: str, timeout_s: float = WAIT_S) -> _T:
        """Return the condition's first true value; fail with `what` and the pods' state when it does not come."""

        def checked() -> _T:
            self.check()
            return condition()

        try:
            return wait_for(checked, what, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def wait_for_phase(self, pod: str, *phases: str, timeout_s: float = WAIT_S) -> Object:
        """Return the pod once it is in one of the phases; fail as soon as it cannot come there any more."""

        def found() -> Object | None:
            pod_ = self.find("pods", pod)
            phase = None if pod_ is None else pod_["status"].get("phase")
            if phase in ("Succeeded", "Failed") and phase not in phases:
                raise AssertionError(f"pod {pod} is {phase}, not {' or '.join(phases)}")
            return pod_ if phase in phases else None

        pod_ = self.wait_for(found, f"pod {pod} is {' or '.join(phases)}", timeout_s)
        assert pod_ is not None
        return pod_

    def wait_until_gone(self, pod: str, timeout_s: float = WAIT_S) -> None:
        self.wait_for(lambda: self.find("pods", pod) is None, f"pod {pod} is gone", timeout_s)

    def describe(self) -> str:
        """Return all pods with their state, their last events and the end of their logs."""
        parts = []
        for pod in self.list("pods"):
            name, status = pod["metadata"]["name"], pod["status"]
            states = [one["state"] for one in status.get("containerStatuses") or []]
            parts.append(f"--- {name}: {status.get('phase')} {pod['spec'].get('nodeName')} {states}")
            parts += [f"    {one['reason']}: {one['message']}" for one in self.events(name)[-8:]]
            with contextlib.suppress(Exception):
                parts.append(self.log(name)[-3000:])
        return "\n".join(parts)

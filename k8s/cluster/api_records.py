"""What edlz reads of the API server's answers: only the fields it needs, decoded straight from JSON.

What edlz writes are objects of the `kubernetes` client; reading by these records keeps the cores free of it,
and an answer of another Kubernetes version with more fields does no harm.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

__all__ = [
    "Condition",
    "Container",
    "ContainerState",
    "ContainerStatus",
    "Metadata",
    "ObjectList",
    "OwnerReference",
    "Pod",
    "PodEvent",
    "PodList",
    "PodSpec",
    "PodStatus",
    "ReadinessGate",
    "Resources",
    "Status",
    "Terminated",
    "Waiting",
    "WatchLine",
]

EventKind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class _Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of an object; fields that are not named here are skipped."""


class OwnerReference(_Record, frozen=True, kw_only=True):
    name: str = ""
    kind: str = ""
    uid: str = ""


class Metadata(_Record, frozen=True, kw_only=True):
    """Whose object it is.  `resource_version` is opaque: it may be handed back, not counted with."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class Waiting(_Record, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class Running(_Record, frozen=True, kw_only=True):
    started_at: datetime | None = None


class Terminated(_Record, frozen=True, kw_only=True):
    exit_code: int = 0
    signal: int | None = None
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(_Record, frozen=True, kw_only=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Record, frozen=True, kw_only=True):
    name: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    ready: bool = False
    restart_count: int = 0
    image: str = ""


class Condition(_Record, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(_Record, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Resources(_Record, frozen=True, kw_only=True):
    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class Container(_Record, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] | None = None
    resources: Resources = msgspec.field(default_factory=Resources)


class ReadinessGate(_Record, frozen=True, kw_only=True):
    condition_type: str = ""


class PodSpec(_Record, frozen=True, kw_only=True):
    node_name: str = ""
    priority_class_name: str = ""
    restart_policy: str = "Always"
    containers: tuple[Container, ...] | None = None  # none in a bookmark
    readiness_gates: tuple[ReadinessGate, ...] | None = None


class Pod(_Record, frozen=True, kw_only=True):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}

    @property
    def owner_uids(self) -> tuple[str, ...]:
        return tuple(owner.uid for owner in self.metadata.owner_references or ())

    @property
    def container(self) -> Container:
        """The one that is named as the pod is, as ours are; a cluster may add others to it."""
        containers = self.spec.containers or ()
        return next((each for each in containers if each.name == self.name), (*containers, Container())[0])

    @property
    def container_status(self) -> ContainerStatus:
        """The status of `container`."""
        statuses = self.status.container_statuses or ()
        name = self.container.name
        return next((each for each in statuses if each.name == name), ContainerStatus())

    @property
    def memory(self) -> str | None:
        """The most memory that its container may have."""
        resources = self.container.resources
        return (resources.limits or {}).get("memory") or (resources.requests or {}).get("memory")

    @property
    def is_deleted(self) -> bool:
        """Whether it was asked to go; it may still run."""
        return self.metadata.deletion_timestamp is not None


class ListMetadata(_Record, frozen=True, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class PodList(_Record, frozen=True, kw_only=True):
    """Pods as they were at one revision, from which a watch can go on."""

    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)
    items: tuple[Pod, ...] = ()  # [] for none: the server never leaves it out

    @property
    def resource_version(self) -> str:
        return self.metadata.resource_version


class ObjectList(_Record, frozen=True, kw_only=True):
    """Objects of any kind, as they come."""

    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)
    items: tuple[dict[str, Any], ...] | None = None


class PodEvent(_Record, frozen=True, kw_only=True):
    """One event of a watch; of a BOOKMARK only the pod's resource version counts."""

    type: EventKind
    object: Pod


class WatchLine(_Record, frozen=True, kw_only=True):
    """A line of a watch before it is known whether it is an event or an error."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class Cause(_Record, frozen=True, kw_only=True):
    field: str = ""
    message: str = ""
    reason: str = ""


class Details(_Record, frozen=True, kw_only=True):
    name: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: int = 0


class Status(_Record, frozen=True, kw_only=True):
    """The server's word on a request that it refused."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None

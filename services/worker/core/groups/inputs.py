"""What the core of a member is told."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edlz.services.parameters.store import Store
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import (
    FailedTask,
    GroupOrders,
    Identity,
    PartInfo,
    SlotHeader,
    SnapshotName,
)
from edlz.services.storage.state import State
from edlz.services.worker.core.groups.node_sums import NO_SUMS, Sums

__all__ = [
    "Advanced",
    "Answered",
    "Assembled",
    "BlockComputed",
    "Built",
    "Digested",
    "Input",
    "Loaded",
    "MemberOrdered",
    "PartWritten",
    "Request",
    "SlotBegins",
    "SlotComputed",
    "SlotFailed",
    "Tick",
]


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Built:
    """The model is built and traced; `store` has the whole state before training."""

    store: Store


@dataclass(frozen=True)
class MemberOrdered:
    """The master's answer to a status."""

    orders: GroupOrders


@dataclass(frozen=True)
class SlotBegins:
    """A slot of a block comes next that `is_slow`: it waits until that is heard (`Proceed`)."""

    attempt: int
    task: int
    index: int


@dataclass(frozen=True)
class SlotComputed:
    """The minibatch in a slot of the block, in slot order.

    `attempt` is that of the `Compute`.
    """

    attempt: int
    header: SlotHeader
    counters: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class SlotFailed:
    """The user's code raised at this minibatch."""

    attempt: int
    task: int
    index: int
    error: str
    failed: FailedTask | None = None


@dataclass(frozen=True)
class BlockComputed:
    """All slots of the block are computed, perhaps none: the learning rate of the step, and the sums of their vectors."""

    attempt: int
    learning_rate: float
    sums: Sums = NO_SUMS


@dataclass(frozen=True)
class Advanced:
    """The values of the next version are worked out."""


@dataclass(frozen=True)
class Request:
    """Another member's; `to`: whatever the answer is to be sent with."""

    to: Hashable
    body: Message


@dataclass(frozen=True)
class Answered:
    """What another member has answered to what was asked with this key."""

    member: Identity
    key: Hashable
    body: Message


@dataclass(frozen=True)
class Digested:
    """The digest that was to be worked out with this key."""

    key: Hashable
    digest: str


@dataclass(frozen=True)
class Assembled:
    """The state that was to be put together; None: the pieces are not those of the state that was cut."""

    attempt: int
    state: State | None


@dataclass(frozen=True)
class Loaded:
    """A durable state that was to be read, and that nobody else has; None: it cannot be."""

    name: SnapshotName
    state: State | None


@dataclass(frozen=True)
class PartWritten:
    """This member's part of a state is durable, or (`error`) is not.

    `generation`: the one in which it was to be written.
    """

    generation: Identity
    name: SnapshotName
    rank: int
    count: int
    is_checkpoint: bool = False
    info: PartInfo | None = None
    error: str = ""


Input = (
    Tick
    | Built
    | MemberOrdered
    | SlotBegins
    | SlotComputed
    | SlotFailed
    | BlockComputed
    | Advanced
    | Request
    | Answered
    | Digested
    | Assembled
    | Loaded
    | PartWritten
)

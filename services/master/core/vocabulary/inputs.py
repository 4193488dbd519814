"""What the core of the master is told by its shell."""

from collections.abc import Hashable

import msgspec

from edlz.services.protocol.growing_plan import Piece
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Identity, SnapshotName

__all__ = [
    "DigestRead",
    "Grown",
    "Input",
    "ManifestWritten",
    "Published",
    "Request",
    "Start",
    "StateWritten",
    "StopWanted",
    "Tick",
]


class Start(msgspec.Struct, frozen=True):
    """The master begins."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


class Request(msgspec.Struct, frozen=True):
    """A partition, a worker or a supervisor says what is, or somebody wants another number of workers.

    `to`: whatever the answer is to be sent with.
    """

    to: Hashable
    body: Message


class StopWanted(msgspec.Struct, frozen=True):
    """The job should end before it is done, with a checkpoint to go on from if one can be had soon."""


class DigestRead(msgspec.Struct, frozen=True):
    """The digest of the sealed parameters of these lives; None when it could not be read."""

    lives: tuple[Identity, ...]
    digest: str | None


class ManifestWritten(msgspec.Struct, frozen=True):
    """A checkpoint's manifest is durable; `error`: why it is not."""

    version: int
    error: str = ""


class StateWritten(msgspec.Struct, frozen=True):
    """A state that a group can go on from is whole on the disk; `error`: why it is not."""

    name: SnapshotName
    error: str = ""


class Published(msgspec.Struct, frozen=True):
    """The predictions are published, but for those tasks whose files are missing; or why they cannot be."""

    missing: tuple[int, ...] = ()
    failure: FailureView | None = None


class Grown(msgspec.Struct, frozen=True):
    """There is more data to train on, which nobody has told before."""

    piece: Piece


Input = Start | Tick | Request | StopWanted | DigestRead | ManifestWritten | StateWritten | Published | Grown

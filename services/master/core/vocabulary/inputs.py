"""What the core of the master is told by its shell."""

from collections.abc import Hashable
from dataclasses import dataclass

from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import Identity

__all__ = ["DigestRead", "Input", "ManifestWritten", "Published", "Request", "Start", "StopWanted", "Tick"]


@dataclass(frozen=True, slots=True)
class Start:
    """The master begins."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""

    now: float


@dataclass(frozen=True, slots=True)
class Request:
    """A partition, a worker or a supervisor says what is, or somebody wants another number of workers.

    `to`: whatever the answer is to be sent with.
    """

    to: Hashable
    body: Message
    now: float


@dataclass(frozen=True, slots=True)
class StopWanted:
    """The job should end before it is done, with a checkpoint to go on from if one can be had soon."""

    now: float


@dataclass(frozen=True, slots=True)
class DigestRead:
    """The digest of the sealed parameters of these lives; None when it could not be read."""

    lives: tuple[Identity, ...]
    digest: str | None


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """A checkpoint's manifest is durable; `error`: why it is not."""

    version: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """The predictions are published, but for those tasks whose files are missing; or why they cannot be."""

    missing: tuple[int, ...] = ()
    failure: FailureView | None = None


Input = Start | Tick | Request | StopWanted | DigestRead | ManifestWritten | Published

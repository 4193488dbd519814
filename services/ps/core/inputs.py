"""What the core of a partition is told by its shell."""

from collections.abc import Hashable

import msgspec

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import PartInfo, PartitionStatus
from edlz.services.ps.core.instructions import Write

__all__ = [
    "Answered",
    "Input",
    "LeaveWanted",
    "NoRoom",
    "PartFailed",
    "PartWritten",
    "RareInput",
    "Request",
    "SnapshotOver",
    "Tick",
    "Written",
]


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


class Request(msgspec.Struct, frozen=True):
    """A worker's or the master's request; `to`: whatever the answer is to be sent with."""

    to: Hashable
    body: Message


class Answered(msgspec.Struct, frozen=True):
    """The master's answer to a status."""

    asked: PartitionStatus
    answer: Message


class LeaveWanted(msgspec.Struct, frozen=True):
    """Whoever runs this process wants it to end within so many seconds."""

    grace_s: float


class Written(msgspec.Struct, frozen=True):
    """A base, a snapshot or a seal is durable."""

    write: Write


class SnapshotOver(msgspec.Struct, frozen=True):
    """A recovery snapshot was not written: the disk refused it, or its era is over."""


class NoRoom(msgspec.Struct, frozen=True):
    """A base or a sealed snapshot does not fit on the disk: it is taken anew, by whoever asks for it next."""

    write: Write


class PartWritten(msgspec.Struct, frozen=True):
    """This partition's part of a checkpoint is durable."""

    write: Write
    info: PartInfo


class PartFailed(msgspec.Struct, frozen=True):
    """A checkpoint's part could not be written."""

    write: Write
    error: str


RareInput = Answered | LeaveWanted | Written | SnapshotOver | NoRoom | PartWritten | PartFailed
"""What may change where a partition stands."""

Input = Request | Tick | RareInput

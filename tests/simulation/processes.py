"""The processes of a simulated job, each around its core."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from edlz.services.protocol.message_types import Message
from edlz.services.transport.outbox import Outbox
from edlz.services.worker.pace import Pace

__all__ = ["Process", "Request", "Violation"]


class Violation(Exception):
    """A promise is broken."""


@dataclass
class Request:
    """What a process has asked and has no answer to yet."""

    role: str
    key: Hashable
    body: Message
    again: Message | None = None  # what it is repeated with
    sent_s: float = 0.0


@dataclass
class Process:
    name: int
    role: str
    core: Any
    is_up: bool = True
    stalled_until: float = 0.0
    is_apart: bool = False  # it and the master cannot reach each other
    is_leaving: bool = False  # it was told to end
    written_s: float = (
        0.0  # when a partition's last write ends: one thread does them all, one after the other
    )
    outboxes: dict[str, Outbox[Request]] = field(default_factory=dict)  # by whom they ask
    ends: dict[int, int | None] = field(default_factory=dict)  # of a worker's tasks in hand
    pace: Pace = field(default_factory=Pace)  # of a worker's building and stepping
    step: int = 0  # numbers a worker's computations: one that was abandoned is not the present one
    sums: Any = None  # of a member's block
    slow: Any = None  # a member's block, and the place of the slot in it that waits for a word

"""The processes of a simulated job, each around its core."""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Process", "Violation"]


class Violation(Exception):
    """A promise is broken."""


@dataclass
class Process:
    name: int
    role: str
    core: Any
    is_up: bool = True
    stalled_until: float = 0.0
    requests: dict[int, list[Any]] = field(default_factory=dict)  # id -> [role, key, body, sent at]
    ends: dict[int, int | None] = field(default_factory=dict)  # of a worker's tasks in hand

"""A request that has no answer yet, as the client has it that asks: its bytes, and when they go out again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edlz.services.errors import EdlzError
from edlz.services.protocol.message_types import Message
from edlz.services.transport.codec import Buffer
from edlz.services.transport.wire import Departure

__all__ = ["NEVER", "OnAnswer", "Request"]

NEVER: Final = float("inf")

OnAnswer = Callable[[Message | EdlzError], None]


@dataclass(slots=True)
class Request:
    """Of one client.

    Attributes
    ----------
    again : list of buffers or None
        Its short form.
    due_at : float
        When it is sent again.
    departure : Departure or None
        Of the last copy that was sent.
    """

    kind: str
    frames: list[Buffer]
    on_answer: OnAnswer
    asked_at: float
    deadline: float
    retry_s: float
    again: list[Buffer] | None = None
    due_at: float = NEVER
    departure: Departure | None = None

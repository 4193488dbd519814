"""What the master says to who has heard a master of a later term."""

from collections.abc import Hashable

from edlz.services.errors import RemoteProtocolError
from edlz.services.master.core.vocabulary.instructions import Instruction, Journal, Reply
from edlz.services.protocol.messages import ErrorReply

__all__ = ["look_up"]


def look_up(to: Hashable, name: str, term: int, own: int) -> list[Instruction]:
    """Somebody has heard a master of a later term, or is wrong: the journal knows, and ends this one if need be."""
    text = f"{name} speaks of a master of term {term}; this one, of term {own}, is the newest"
    error = RemoteProtocolError(text)
    return [Journal({}), Reply(to, ErrorReply(code=error.code, message=error.message))]

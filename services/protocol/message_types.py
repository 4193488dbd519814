"""What all messages of the wire are made of."""

import sys
from typing import Annotated

import msgspec

__all__ = ["Finite", "Message", "Record"]

_LARGEST = sys.float_info.max
Finite = Annotated[float, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]  # neither NaN nor infinite


class Record(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A part of a message."""


class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Base of everything that travels by itself."""

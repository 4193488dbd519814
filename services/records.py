"""What all messages of the wire are made of."""

import msgspec

__all__ = ["Message", "Record"]


class Record(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A part of a message."""


class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Base of everything that travels by itself."""

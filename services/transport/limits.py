"""The largest messages that are sent or taken: all limits of the wire.

Who sends more gets an error of its own codec, since ZeroMQ drops a connection over an oversize frame without a word.
"""

from dataclasses import dataclass, field
from typing import Final

__all__ = ["FRAME_BYTES", "HeaderLimits", "Limits"]

# Of a tensor: frames that fit the L2 cache travel 1.5 times as fast as 16 MiB ones, if their receiver copies them.
FRAME_BYTES: Final = 1 << 20
ENCRYPTION_BYTES: Final = 64  # what CURVE adds to a frame, amply


@dataclass(frozen=True, kw_only=True)
class HeaderLimits:
    """Of the msgpack header of a message."""

    total_bytes: int
    containers: int  # lists and maps in it, which are what takes memory once they are unpacked
    depth: int = 32  # of lists within lists
    array_length: int = 1 << 20
    map_length: int = 1 << 16
    text_bytes: int = 1 << 20  # a traceback
    binary_bytes: int = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of requests, which anybody with a key may send, and of answers, which come from a server that is known."""

    # The layout of a model with thousands of variables, the statuses of a worker.
    request_header: HeaderLimits = field(
        default_factory=lambda: HeaderLimits(total_bytes=FRAME_BYTES, containers=1 << 17)
    )
    # A plan with 200,000 shards.
    answer_header: HeaderLimits = field(
        default_factory=lambda: HeaderLimits(total_bytes=16 << 20, containers=1 << 20)
    )
    message_bytes: int = 2 << 30
    tensors: int = 4096
    frame_bytes: int = FRAME_BYTES  # of a tensor; what comes in smaller frames is taken as well

    @property
    def request_frame_bytes(self) -> int:
        """The largest single frame that a server takes; of strangers too, as ZeroMQ has no limit for them."""
        return max(self.request_header.total_bytes, self.frame_bytes) + ENCRYPTION_BYTES

    @property
    def answer_frame_bytes(self) -> int:
        """The largest single frame that a client takes."""
        return max(self.answer_header.total_bytes, self.frame_bytes) + ENCRYPTION_BYTES

    @property
    def frames(self) -> int:
        """The most frames that a valid message can have: each tensor ends with a frame that is not full."""
        return 1 + self.tensors + self.message_bytes // FRAME_BYTES

"""Who is let in: the handler that ZeroMQ asks for each client of an encrypting server (RFC 27, ZAP).

ZeroMQ has one handler a process, at a fixed inproc address, which tells servers apart by their domain.  It lives on
the event loop as long as there is a server that needs it; without it nobody is let in.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Final

import zmq
from zmq.utils import z85

from edlz.services.errors import LocalProtocolError
from edlz.services.transport.codec import Buffer
from edlz.services.transport.loop_socket import LoopSocket

__all__ = ["Doorkeeper", "admit_only"]

ADDRESS: Final = "inproc://zeromq.zap.01"
VERSION: Final = b"1.0"
FRAME_BYTES, MOST_FRAMES = 4096, 16  # a question has 9 frames, of 255 bytes at most

logger = logging.getLogger(__name__)

_numbers = itertools.count(1)


class Doorkeeper:
    """Lets in the holders of certain keys at one server; made by `admit_only`.

    Parameters
    ----------
    domain : bytes
        Of the server, by which ZeroMQ asks.
    roles : mapping of public key to role
        Who is let in.

    Attributes
    ----------
    before_verdict : callable ()
        Called before each; a connection that is refused has ended soon after.
    """

    def __init__(self, domain: bytes, roles: Mapping[bytes, str]) -> None:
        self.domain, self.roles = domain, roles
        self.before_verdict: Callable[[], None] = _do_nothing

    def close(self) -> None:
        """Let nobody in any more."""
        _Handler.forget(self.domain)


def admit_only(keys: Mapping[str, bytes]) -> Doorkeeper:
    """Let in who holds one of these keys (role: Z85), under a new domain.

    Raises
    ------
    LocalProtocolError
        If another event loop of this process has encrypting servers.
    """
    door = Doorkeeper(b"edlz-%d" % next(_numbers), {z85.decode(key): role for role, key in keys.items()})
    _Handler.learn(door)
    return door


def _do_nothing() -> None:
    pass


class _Handler(LoopSocket):
    """The one ZAP handler of this process."""

    _the_one: "_Handler | None" = None

    def __init__(self) -> None:
        super().__init__(zmq.ROUTER, linger_s=0, frame_bytes=FRAME_BYTES, frames=MOST_FRAMES)
        self.doors: dict[bytes, Doorkeeper] = {}  # by domain
        try:
            self._socket.bind(ADDRESS)
        except zmq.ZMQError as error:
            super().close()
            raise LocalProtocolError(f"{ADDRESS} is taken: another library authenticates here") from error
        self._watch()

    @classmethod
    def learn(cls, door: Doorkeeper) -> None:
        if cls._the_one is None:
            cls._the_one = cls()
        elif cls._the_one._loop is not asyncio.get_running_loop():
            raise LocalProtocolError("encrypting servers of one process must share an event loop")
        cls._the_one.doors[door.domain] = door

    @classmethod
    def forget(cls, domain: bytes) -> None:
        if cls._the_one is not None:
            cls._the_one.doors.pop(domain, None)
            if not cls._the_one.doors:
                cls._the_one.close()
                cls._the_one = None

    def close(self) -> None:
        if not self._is_closed:
            self._socket.unbind(ADDRESS)  # at once, while a closed socket keeps its address for a while
            super().close()

    def _take(self, frames: list[Buffer]) -> None:
        self._answer([bytes(frame) for frame in frames])

    def _answer(self, frames: list[bytes]) -> None:
        """Answer one question.  What is not a question (ZeroMQ itself asks them) gets no answer, and the peer's time runs out."""
        if len(frames) < 8 or frames[2] != VERSION:
            logger.warning("a malformed ZAP request of %d frames", len(frames))
            return
        asking, _, _, request, domain, _, _, mechanism, *credentials = frames
        door = self.doors.get(domain)
        role: str | None = None
        if door is not None:
            door.before_verdict()
            role = door.roles.get(credentials[0]) if mechanism == b"CURVE" and credentials else None
        verdict = (
            (b"200", b"OK", role.encode()) if role is not None else (b"400", b"not a key of this job", b"")
        )
        self._wire.send([b"", VERSION, request, *verdict, b""], asking)

"""The only module that makes sockets: ZeroMQ's, hooked into the running event loop.

A socket is a plain one whose file descriptor the loop watches; zmq.asyncio with its futures would cost 60 to
100 us a message.  The descriptor speaks up only when ZeroMQ has new commands
for this thread, and any call of a socket may consume them: so whoever has called one looks at its events
afterwards, and reads whatever is there.

Everything stays on this machine (loopback TCP, Unix sockets); what goes beyond needs encryption, which
this version does not have.  How messages get into a socket and out of it is `services/wire.py`'s affair, what
they mean `services/codec.py`'s, and who sends what again when `services/rpc.py`'s.
"""

import asyncio
import atexit
import contextlib
import errno
import functools
import os
import socket
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import zmq
import zmq.utils.garbage  # for its place among the exit handlers, see process_context

from edlz.services.codec import Buffer, Limits
from edlz.services.endpoints import Endpoint, parse_endpoint
from edlz.services.errors import LaunchError
from edlz.services.ports import port_problem
from edlz.services.wire import Departure, open_wire, release_departed

__all__ = [
    "ClientTransport",
    "DealerSocket",
    "Departure",
    "RouterSocket",
    "ServerTransport",
    "process_context",
]

MESSAGES_PER_WAKE: Final = 32  # then the loop's other business has its turn
SAFETY_HWM: Final = 4096  # messages a peer; credits keep it far from that
UNBIND_WAIT_MS: Final = 200
# A socket that is closed without any linger, in the middle of a message, while its connection breaks, makes
# libzmq 4.3.5 abort the process (session_base.cpp, clean_pipes: the rest of the message is out of reach).
LEAST_LINGER_MS: Final = 100
RECONNECT_MS, RECONNECT_MAX_MS = 50, 1000
RELEASE_EVERY_S: Final = 0.05
# As plain numbers: each operation on zmq's own enumerations costs 0.4 us.
POLLIN, POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)


class ServerTransport(Protocol):
    """What an RPC server needs; made with `on_message(peer, frames)`, which is called on the loop."""

    endpoint: str  # where it listens, with the port that was chosen

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> bool:
        """Send a message, never waiting; False if the peer is gone or takes nothing more."""
        ...

    def close(self) -> None: ...


class ClientTransport(Protocol):
    """What an RPC client needs; made with `on_message(frames)` and `on_connected()`.

    `on_connected` is called on the loop each time that the server becomes reachable, after a loss too:
    what was sent before and not answered may be lost.
    """

    is_connected: bool

    def send(self, frames: Sequence[Buffer]) -> Departure | None:
        """Send a message, never waiting; None if there is no connection."""
        ...

    def close(self) -> None: ...


@functools.cache
def process_context() -> "zmq.Context[zmq.Socket[bytes]]":
    """Return this process' one ZeroMQ context (one thread that does the sending and receiving).

    At exit it waits until what closed sockets still have to send has left, no longer than their linger.
    Exit handlers run last in, first out, hence the import above: pyzmq's own, which forgets the memory
    that is shared with ZeroMQ, must come after this one.
    """
    context = zmq.Context()
    atexit.register(_close_context, context)
    return context


# Kept alive until closed: a socket that is lost without having been closed would block the exit for ever.
_open_sockets: set["zmq.Socket[bytes]"] = set()


def _close_context(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    for left in _open_sockets:
        left.close(LEAST_LINGER_MS)
    context.term()


class _LoopSocket(ABC):
    """A ZeroMQ socket whose messages are handed over on the event loop."""

    def __init__(self, kind: int, limits: Limits, linger_s: float) -> None:
        self._socket = process_context().socket(kind)
        _open_sockets.add(self._socket)
        self._socket.set_hwm(SAFETY_HWM)
        self._socket.setsockopt(zmq.LINGER, max(round(linger_s * 1000), LEAST_LINGER_MS))
        self._socket.setsockopt(zmq.MAXMSGSIZE, limits.frame_bytes)
        # A message of more frames is malformed, whatever they hold: one too many tells, besides the peer's name.
        self._wire = open_wire(self._socket, limits.frames + 2)
        self._release_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._is_drain_due = False
        self._fd: int | None = None

    def close(self) -> None:
        """Stop receiving at once; what was sent goes out within the linger."""
        if not self._is_closed:
            self._is_closed = True
            if self._fd is not None:
                self._loop.remove_reader(self._fd)
            if self._release_timer is not None:
                self._release_timer.cancel()
            self._wire.close()
            self._socket.close()
            _open_sockets.discard(self._socket)

    def _watch(self) -> None:
        self._fd = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._drain)
        self._schedule_drain()

    def _schedule_drain(self) -> None:
        if not self._is_drain_due:
            self._is_drain_due = True
            self._loop.call_soon(self._drain)

    @abstractmethod
    def _drain(self) -> None:
        """Hand over what has come, up to a cap."""

    def _watch_departures(self) -> None:
        """See to it that shared frames are let go of soon after they have left, even if nothing else happens."""
        if self._release_timer is None:
            self._release_timer = self._loop.call_later(RELEASE_EVERY_S, self._release)

    def _release(self) -> None:
        self._release_timer = None
        if release_departed():
            self._watch_departures()


class RouterSocket(_LoopSocket):
    """A server's socket (ZeroMQ: ROUTER).

    Parameters
    ----------
    endpoint : str
        See parse_endpoint.
    on_message : callable (peer: bytes, frames: list of buffers)
        Called for each message, on the loop.
    limits : Limits
        ZeroMQ drops the connection over a frame that exceeds them.
    linger_s : float
        How long messages may still go out after `close`; 0.1 at least.

    Raises
    ------
    ConfigError
        See parse_endpoint.
    LaunchError
        If the address is in use or cannot be bound.
    """

    def __init__(
        self,
        endpoint: str,
        on_message: Callable[[bytes, list[Buffer]], None],
        limits: Limits,
        *,
        linger_s: float,
    ) -> None:
        place = parse_endpoint(endpoint, binding=True)
        super().__init__(zmq.ROUTER, limits, linger_s)
        self._on_message, self._path = on_message, place.path
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # A client that reconnects while this thread is busy would be ignored for ever without it.  Nobody
        # else has its identity, which contains a random number.
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.setsockopt(zmq.IPV6, int(place.is_ipv6))
        try:
            _bind(self._socket, place)
        except BaseException:
            super().close()
            raise
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._watch()

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> bool:
        """Send a message, never waiting; False if the peer is gone or takes nothing more.

        A full peer is stuck or gone, since credits bound what it can be owed: the message is dropped, and
        it may ask again.
        """
        if self._is_closed:
            return False
        try:
            departure = self._wire.send(frames, peer)
            if departure is None:
                return False
            if not departure.done:
                self._watch_departures()
            return True
        finally:
            if not self._is_drain_due and self._wire.events() & POLLIN:
                self._schedule_drain()

    def close(self) -> None:
        """Free the address, then close; answers already given go out within the linger.

        Waits (a millisecond at most, as a rule) until the address is free, so that a successor can bind.
        """
        if self._is_closed:
            return
        if self._path is not None:
            # While this socket still listens, nobody else can have taken its path.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        monitor = self._socket.get_monitor_socket(zmq.EVENT_CLOSED)
        with contextlib.suppress(zmq.ZMQError):
            self._socket.unbind(self.endpoint)
            monitor.poll(UNBIND_WAIT_MS)
        self._socket.disable_monitor()
        monitor.close(0)
        super().close()

    def _drain(self) -> None:
        self._is_drain_due = True  # spares the look at the events after each answer that is sent from here
        for _ in range(MESSAGES_PER_WAKE):
            if self._is_closed:
                return
            frames = self._wire.receive()
            if frames is None:
                self._is_drain_due = False
                return
            self._on_message(bytes(frames.pop(0)), frames)
        self._loop.call_soon(self._drain)


class DealerSocket(_LoopSocket):
    """A client's socket (ZeroMQ: DEALER); it connects and reconnects by itself.

    Messages are queued only for a connection that exists (ZMQ_IMMEDIATE): a server that is away for a
    minute finds on its return no heap of repetitions, but what is sent after `on_connected`.

    Parameters
    ----------
    endpoint : str
        See parse_endpoint.
    identity : bytes
        Unique in the life of the server: role, id and a random boot number.
    on_message : callable (frames: list of buffers)
    on_connected : callable ()
        Called each time that the server becomes reachable.
    limits, linger_s : see RouterSocket

    Raises
    ------
    ConfigError
        See parse_endpoint.
    """

    def __init__(
        self,
        endpoint: str,
        identity: bytes,
        on_message: Callable[[list[Buffer]], None],
        on_connected: Callable[[], None],
        limits: Limits,
        *,
        linger_s: float,
    ) -> None:
        place = parse_endpoint(endpoint)
        super().__init__(zmq.DEALER, limits, linger_s)
        self._on_message, self._on_connected = on_message, on_connected
        self.is_connected = False
        self._socket.setsockopt(zmq.IDENTITY, identity)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.IPV6, int(place.is_ipv6))
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        self._socket.connect(place.address)
        self._watch()

    def send(self, frames: Sequence[Buffer]) -> Departure | None:
        """Send a message, never waiting; None if there is no connection."""
        if self._is_closed:
            return None
        try:
            departure = self._wire.send(frames)
            if departure is not None and not departure.done:
                self._watch_departures()
            return departure
        finally:
            if not self._is_drain_due:
                events = self._wire.events()
                if events & POLLIN or bool(events & POLLOUT) != self.is_connected:
                    self._schedule_drain()

    def _drain(self) -> None:
        self._is_drain_due = True
        for _ in range(MESSAGES_PER_WAKE):
            if self._is_closed:  # by a callback, or since the loop was told to call this
                return
            # The last look at the events must come after the last call that reads commands, or a
            # connection that came up in between would go unnoticed.
            events = self._wire.events()
            was_connected, self.is_connected = self.is_connected, bool(events & POLLOUT)
            if self.is_connected and not was_connected:
                self._on_connected()
            elif events & POLLIN:
                frames = self._wire.receive()
                if frames is not None:
                    self._on_message(frames)
            else:
                self._is_drain_due = False
                return
        self._loop.call_soon(self._drain)


def _bind(server: "zmq.Socket[bytes]", place: Endpoint) -> None:
    if place.path is not None:
        _clear_path(place.path)
    try:
        server.bind(place.address)
        if place.path is not None:
            os.chmod(place.path, 0o600)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE and place.port:
            problem = port_problem(place.port)
            message = problem.message if problem else f"port {place.port} is in use"
            raise LaunchError(message, problem.help if problem else "--port=0 picks a free one") from error
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise LaunchError(f"cannot listen at {place.address}: {reason}", "choose another address") from error


def _clear_path(path: str) -> None:
    """Make the folder of a socket file, and remove the file if its owner is dead.

    ZeroMQ itself would remove whatever is there: another server's living socket, or somebody's file.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        if not os.path.lexists(path):
            return
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise LaunchError(f"{path} is there and is not a socket", "remove it, or choose another path")
        if _is_listening(path):
            raise LaunchError(f"{path} is in use by another process", "stop it, or choose another path")
        os.unlink(path)
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        raise LaunchError(f"cannot listen at {path}: {reason}", "choose another path") from error


def _is_listening(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:  # so many connect to it that this one has to wait
            return True
    return True

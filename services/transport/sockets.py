"""The sockets that services talk by: a server's and a client's, hooked into the running event loop.

Which addresses they may use, and with which keys, is `services/transport/security.py`'s affair.  How messages get into a
socket and out of it is `services/transport/wire.py`'s, what they mean `services/transport/codec.py`'s, and who sends what again when
`services/transport/rpc.py`'s.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import zmq

from edlz.core_ext._tensors import size_in_bytes
from edlz.services.configuration.endpoints import Endpoint
from edlz.services.configuration.ports import port_problem
from edlz.services.errors import EdlzError, LaunchError
from edlz.services.transport.codec import Buffer
from edlz.services.transport.gate import Gate
from edlz.services.transport.handshakes import Refusals
from edlz.services.transport.limits import Limits
from edlz.services.transport.loop_socket import BYTES_PER_WAKE, MESSAGES_PER_WAKE, LoopSocket
from edlz.services.transport.monitor import Monitor
from edlz.services.transport.security import Security
from edlz.services.transport.wire import Departure
from edlz.services.transport.zap import Doorkeeper, admit_only

__all__ = [
    "ClientTransport",
    "DealerSocket",
    "Departure",
    "RouterSocket",
    "ServerTransport",
]

HANDSHAKE_MS: Final = 10_000  # who has not finished by then is cut off
BACKLOG: Final = 1024  # connections that wait to be accepted; of more the next try is a second later
UNBIND_WAIT_MS: Final = 200
RECONNECT_MS, RECONNECT_MAX_MS = 50, 1000
LOOK_S: Final = 1.0  # without a connection, until a client looks at what becomes of its handshakes
# Between machines a peer can vanish without a word: ask it when it is silent, give it up when it takes nothing.
SILENCE_S, ASK_EVERY_S, ASK_TIMES, UNTAKEN_MS = 30, 10, 3, 60_000
# As plain numbers: each operation on zmq's own enumerations costs 0.4 us.
POLLIN, POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)

logger = logging.getLogger(__name__)


class ServerTransport(Protocol):
    """What an RPC server needs; made with `on_message(peer, frames)`, which is called on the loop."""

    endpoint: str  # where it listens, with the port that was chosen

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> Departure | None:
        """Send a message, never waiting; None if the peer is gone or takes nothing more."""
        ...

    def close(self) -> None: ...


class ClientTransport(Protocol):
    """What an RPC client needs; made with `on_message(frames)`, `on_connected()` and `on_refused(error)`.

    `on_connected` is called on the loop each time that the server becomes reachable, after a loss too:
    what was sent before and not answered may be lost.  `on_refused` is called once, when the server has
    refused all connections for so long that trying on makes no sense.
    """

    is_connected: bool

    @property
    def refusal(self) -> EdlzError | None:
        """Why the server refuses connections, as long as it does."""
        ...

    def send(self, frames: Sequence[Buffer]) -> Departure | None:
        """Send a message, never waiting; None if there is no connection."""
        ...

    def close(self) -> None: ...


class RouterSocket(LoopSocket):
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
    security : Security
        Where it may listen, and the keys: with them, who has none of the job's is refused.

    Raises
    ------
    ConfigError
        See Security.admit.
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
        security: Security,
    ) -> None:
        place = security.admit(endpoint, binding=True)
        super().__init__(zmq.ROUTER, linger_s, frame_bytes=limits.request_frame_bytes, frames=limits.frames)
        self._on_message, self._path = on_message, place.path
        self._door: Doorkeeper | None = None
        self._gate: Gate | None = None
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # A client that reconnects while this thread is busy would be ignored for ever without it.  Nobody
        # else has its identity, which contains a random number.
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._socket.setsockopt(zmq.BACKLOG, BACKLOG)
        _set_up_tcp(self._socket, place)
        try:
            if security.keys is not None:
                self._door = admit_only(security.admitted)
                security.guard_server(self._socket, self._door.domain)
            listener = None if place.path is None else _UnixListener(self._socket, place)
            self._gate = Gate(self._socket, has_keys=security.keys is not None, listener=listener)
            if self._door is not None:
                # The address of who is refused can be found until then.
                self._door.before_verdict = self._gate.catch_up
            _bind(self._socket, place)
        except BaseException:
            self._close_door()
            super().close()
            raise
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._watch()

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> Departure | None:
        """Send a message, never waiting; None if the peer is gone or takes nothing more.

        A full peer is stuck or gone, since credits bound what it can be owed: the message is dropped, and
        it may ask again.
        """
        if self._is_closed:
            return None
        try:
            departure = self._wire.send(frames, peer)
            if departure is not None and not departure.done:
                self._watch_departures()
            return departure
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
        self._close_door()
        monitor = self._socket.get_monitor_socket(zmq.EVENT_CLOSED)
        with contextlib.suppress(zmq.ZMQError):
            self._socket.unbind(self.endpoint)
            monitor.poll(UNBIND_WAIT_MS)
        self._socket.disable_monitor()
        monitor.close(0)
        super().close()

    def _take(self, frames: list[Buffer]) -> None:
        self._on_message(bytes(frames.pop(0)), frames)

    def _close_door(self) -> None:
        if self._gate is not None:
            self._gate.close()
        if self._door is not None:
            self._door.close()


class _UnixListener:
    """A server's listening Unix socket: with no descriptor left for a connection, ZeroMQ would end the process.

    (Over TCP it tries again and again.  A port that was left could be somebody else's afterwards.)
    """

    def __init__(self, server: "zmq.Socket[bytes]", place: Endpoint) -> None:
        self._server, self._place = server, place

    def shut(self) -> None:
        self._server.unbind(self._place.address)

    def open(self) -> bool:
        try:
            _bind(self._server, self._place)
        except LaunchError as error:
            logger.warning("%s", error.message)
            return False
        return True


class DealerSocket(LoopSocket):
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
    on_refused : callable (error: EdlzError)
        Called once, when the server keeps refusing this client's keys, or that it has none.
    limits, linger_s : see RouterSocket
    security : Security
        Where it may connect to, and this process' keys.
    server : str
        The role of the server, whose public key must be the job's.

    Raises
    ------
    ConfigError
        See Security.admit.
    """

    def __init__(
        self,
        endpoint: str,
        identity: bytes,
        on_message: Callable[[list[Buffer]], None],
        on_connected: Callable[[], None],
        on_refused: Callable[[EdlzError], None],
        limits: Limits,
        *,
        linger_s: float,
        security: Security,
        server: str,
    ) -> None:
        place = security.admit(endpoint)
        super().__init__(zmq.DEALER, linger_s, frame_bytes=limits.answer_frame_bytes, frames=limits.frames)
        self._on_message, self._on_connected, self._on_refused = on_message, on_connected, on_refused
        self.is_connected = False
        self._address = place.address
        self._refusals = Refusals(endpoint, security.keys, server)
        self._monitor: Monitor | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._socket.setsockopt(zmq.IDENTITY, identity)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        _set_up_tcp(self._socket, place)
        if security.keys is not None:
            security.guard_client(self._socket, server)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        self._socket.connect(self._address)
        self._watch()
        # Without keys nobody refuses on this machine's Unix sockets.
        self._looks = security.keys is not None or place.path is None
        self._look_later()

    @property
    def refusal(self) -> EdlzError | None:
        """Why the server refuses connections, as long as it does."""
        return self._refusals.error

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
        taken_bytes = 0
        for _ in range(MESSAGES_PER_WAKE):
            if self._is_closed:  # by a callback, or since the loop was told to call this
                return
            # The last look at the events must come after the last call that reads commands, or a
            # connection that came up in between would go unnoticed.
            events = self._wire.events()
            was_connected, self.is_connected = self.is_connected, bool(events & POLLOUT)
            if was_connected and not self.is_connected:
                self._look_later()
            if self.is_connected and not was_connected:
                self._stop_looking()
                self._on_connected()
            elif events & POLLIN:
                frames = self._wire.receive()
                if frames is not None:
                    taken_bytes += size_in_bytes(frames)
                    self._take(frames)
                if taken_bytes >= BYTES_PER_WAKE:
                    break
            else:
                self._is_drain_due = False
                return
        self._loop.call_soon(self._drain)

    def _take(self, frames: list[Buffer]) -> None:
        self._on_message(frames)

    def close(self) -> None:
        """Stop receiving at once; what was sent goes out within the linger."""
        if not self._is_closed:
            self._stop_looking()
            super().close()

    # A client that is refused sees nothing but a connection that does not come about.  Looking costs two sockets,
    # so that is left for the case that it takes long.

    def _look_later(self) -> None:
        if self._looks and self._look_timer is None:
            self._look_timer = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._look_timer = None
        if self._is_closed or self.is_connected:
            return
        self._look_later()
        is_first = self._monitor is None
        if is_first:
            with contextlib.suppress(zmq.ZMQError):  # as many sockets as there can be: no look then
                self._monitor = Monitor(self._socket, Refusals.EVENTS, self._on_handshake)
        if is_first or self._refusals.is_final_for_zeromq:
            # After most refusals ZeroMQ does not try again by itself.
            self._refusals.is_final_for_zeromq = False
            with contextlib.suppress(zmq.ZMQError):
                self._socket.disconnect(self._address)
            self._socket.connect(self._address)
        self._schedule_drain()  # these calls may have consumed what the descriptor has to say

    def _stop_looking(self) -> None:
        self._refusals.clear()
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def _on_handshake(self, event: int, value: int) -> None:
        error = self._refusals.on_event(event, value, self._loop.time())
        if error is not None:
            self._on_refused(error)


def _set_up_tcp(made: "zmq.Socket[bytes]", place: Endpoint) -> None:
    made.setsockopt(zmq.IPV6, int(place.is_ipv6))
    if place.is_beyond:
        made.setsockopt(zmq.TCP_KEEPALIVE, 1)
        made.setsockopt(zmq.TCP_KEEPALIVE_IDLE, SILENCE_S)
        made.setsockopt(zmq.TCP_KEEPALIVE_INTVL, ASK_EVERY_S)
        made.setsockopt(zmq.TCP_KEEPALIVE_CNT, ASK_TIMES)
        made.setsockopt(zmq.TCP_MAXRT, UNTAKEN_MS)


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

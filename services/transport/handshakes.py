"""Connections that are refused: what a client makes of it, and what a server says of it in its log.

An encrypting server says nothing to whom it does not know, and ZeroMQ's sockets pass nothing on.  What remains are
the monitor's events (`services/transport/monitor.py`).  `Refusals` judges by them on a client's side, `RefusedPeers` on a
server's.  Both know no sockets but for a peer's address.
"""

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, Final

import zmq

from edlz.services.errors import ConfigError, EdlzError
from edlz.services.transport.keys import RoleKeys

__all__ = ["Refusals", "RefusedPeers"]

REFUSED_S: Final = 6.0  # of nothing but refusals, until a client gives up
HUNG_UP_S: Final = 30.0  # the same, if the server does not say that it refuses: it may also have trouble
SURE_HANG_UPS: Final = 2  # one may also be a server that is just ending
PAUSE_S: Final = 15.0  # without one, and the time begins anew
STALLED_S: Final = 5.0  # a handshake that ended after so long was not refused: its time ran out
LOG_EVERY_S: Final = 60.0  # for one address
MOST_ADDRESSES: Final = 64  # that are told apart in the log

ACCEPTED, CONNECTED = int(zmq.EVENT_ACCEPTED), int(zmq.EVENT_CONNECTED)
DISCONNECTED = int(zmq.EVENT_DISCONNECTED)
FAILED = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
FAILED_PROTOCOL = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
FAILED_AUTH = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
MISMATCH = int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
CRYPTOGRAPHIC = int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)

_SAME_KEYS = "give both sides the keys of the same job: --keys_dir=DIR"

logger = logging.getLogger(__name__)


class Refusals:
    """Why one server refuses a client, and whether trying on makes sense; the first refusal is logged at once.

    Parameters
    ----------
    endpoint, server : address of the server, and its role in the job
    keys : RoleKeys or None
        This process'; None without any.

    Attributes
    ----------
    error : EdlzError or None
        Why, as long as it refuses.
    is_final_for_zeromq : bool
        Whether ZeroMQ does not try again by itself; to be reset by who does.
    """

    EVENTS: ClassVar[int] = CONNECTED | FAILED | FAILED_PROTOCOL | FAILED_AUTH

    def __init__(self, endpoint: str, keys: RoleKeys | None, server: str = "master") -> None:
        self._server, self._keys = f"the {server} at {endpoint}", keys
        self.error: EdlzError | None = None
        self.is_final_for_zeromq = False
        self._since = self._last = self._connected_at = 0.0
        self._count = 0  # of refusals since then

    def clear(self) -> None:
        """The server has taken a connection."""
        self.error, self.is_final_for_zeromq = None, False

    def on_event(self, event: int, value: int, now: float) -> EdlzError | None:
        """Take an event of the monitor; return the error if it is time to give up."""
        if event == CONNECTED:
            self._connected_at = now
            return None
        if event == FAILED and (self._keys is None or now - self._connected_at > STALLED_S):
            return None
        if self.error is None or now - self._last > PAUSE_S:
            self._since, self._count = now, 0
        self._last = now
        self._count += 1
        self.error = self._meaning(event, value)
        if event != FAILED:
            self.is_final_for_zeromq = True
        limit_s = HUNG_UP_S if event == FAILED else REFUSED_S
        if self._count == (SURE_HANG_UPS if event == FAILED else 1):
            logger.warning("%s; tried on for %.0fs; %s", self.error.message, limit_s, self.error.help)
        return self.error if now - self._since >= limit_s else None

    def _meaning(self, event: int, value: int) -> EdlzError:
        keys = f" ({self._keys.told})" if self._keys is not None else ""
        if event == FAILED_AUTH:
            return ConfigError(f"{self._server} does not know the keys of this process{keys}", _SAME_KEYS)
        if event == FAILED:
            return ConfigError(
                f"{self._server} hangs up on this process: its keys{keys} are probably not those of this job",
                _SAME_KEYS,
            )
        if value != MISMATCH:
            return ConfigError(
                f"what listens as {self._server} does not answer as a service of this job", _SAME_KEYS
            )
        if self._keys is not None:
            return ConfigError(
                f"{self._server} does not encrypt, this process does{keys}",
                "start it with the job's --keys_dir=DIR as well, or this process without",
            )
        return ConfigError(
            f"{self._server} takes encrypted connections only", "give this process the job's --keys_dir=DIR"
        )


class RefusedPeers:
    """Logs who was refused by a server: one line an address in a minute, however often it tries.

    Parameters
    ----------
    clock : callable
        Gives seconds.
    address_of : callable (fd: int) -> str, optional
        Gives a connection's other end.
    """

    EVENTS: ClassVar[int] = ACCEPTED | FAILED | FAILED_PROTOCOL | FAILED_AUTH | DISCONNECTED

    def __init__(self, clock: Callable[[], float], address_of: Callable[[int], str] | None = None) -> None:
        self._clock = clock
        self._address_of = address_of or _address_of
        self._peers: dict[int, str] = {}  # open connections' descriptors: address
        self._failure: tuple[int, int] | None = None  # of the connection that ends next
        self._logged: dict[str, tuple[float, int]] = {}  # address: when, and how many since

    def on_event(self, event: int, value: int) -> None:
        """Take an event of the server's monitor.

        ZeroMQ names a connection when it comes and goes, but not in between: of the one that fails
        the end follows at once.
        """
        if event == ACCEPTED:
            self._peers[value] = self._address_of(value)
        elif event == DISCONNECTED:
            address = self._peers.pop(value, "unknown")
            failure, self._failure = self._failure, None
            if failure is not None:
                self._log(address, _reason(*failure))
        else:
            self._failure = (event, value)

    def _log(self, address: str, reason: str) -> None:
        if not reason:
            logger.debug("a connection ended before it began: peer=%s", address)
            return
        now = self._clock()
        if address not in self._logged and len(self._logged) >= MOST_ADDRESSES:
            self._logged = {
                peer: entry for peer, entry in self._logged.items() if now - entry[0] < LOG_EVERY_S
            }
            if len(self._logged) >= MOST_ADDRESSES:
                address = "others"
        last, count = self._logged.get(address, (float("-inf"), 0))
        if now - last < LOG_EVERY_S:
            self._logged[address] = last, count + 1
            return
        self._logged[address] = now, 0
        more = f" ({count} more since the last such line)" if count else ""
        logger.warning("connection refused: peer=%s reason=%s%s", address, reason, more)


def _reason(event: int, value: int) -> str:
    """Return why a server refused a connection; nothing for one that just ended, as a port scan's."""
    if event == FAILED_AUTH:
        return "its key is not one of this job's keys"
    if event == FAILED:
        return ""
    if value == MISMATCH:
        return "it does not encrypt"
    if value == CRYPTOGRAPHIC:
        return "it expects another server key than this job's"
    return "it does not speak ZeroMQ's protocol"


def _address_of(descriptor: int) -> str:
    """Return the other end of a connection that ZeroMQ has accepted, without its port."""
    with suppress(OSError):
        connection = socket.socket(fileno=descriptor)
        try:
            name = connection.getpeername()
            return str(name[0]) if isinstance(name, tuple) else "a process of this machine"
        finally:
            connection.detach()
    return "unknown"

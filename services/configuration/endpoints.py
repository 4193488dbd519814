"""Addresses as a user writes them; the sockets themselves are `services/transport/sockets.py`'s.

What lies beyond loopback and Unix sockets needs the job's keys: `services/transport/security.py` knows who has them.
"""

import contextlib
import ipaddress
import os
import re
from dataclasses import dataclass
from typing import Final

from edlz.services.errors import ConfigError

__all__ = [
    "Endpoint",
    "is_wildcard",
    "listening_endpoint",
    "local_endpoint",
    "parse_endpoint",
    "reachable_endpoint",
]

MAX_PATH_BYTES: Final = 107  # of a Unix socket: sun_path, unix(7), without its closing zero
LOOPBACK: Final = "127.0.0.1"

_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")


@dataclass(frozen=True)
class Endpoint:
    """An address, checked; `address` is how ZeroMQ spells it."""

    address: str
    path: str | None = None  # of a Unix socket
    port: int = 0  # of TCP; 0 is any free one
    is_beyond: bool = False  # reached from other machines, or on one

    @property
    def is_ipv6(self) -> bool:
        return self.address.startswith("tcp://[")


def parse_endpoint(text: str, *, binding: bool = False) -> Endpoint:
    """Check an endpoint: `tcp://HOST:PORT` or `ipc://PATH`.

    Parameters
    ----------
    text : str
        HOST is an IP address, IPv6 in `[]`; `localhost`; to connect, the name of a machine, which ZeroMQ looks up
        (IPv4 only); to listen, `*` or `0.0.0.0` or `[::]` for all addresses of this machine.
    binding : bool
        Whether a server will listen there; only then may the port be 0 or `*`, any free one.

    Raises
    ------
    ConfigError
        If it is of another form, or the path is too long for a Unix socket.
    """
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "ipc":
        return _parse_path(text, rest)
    if separator and scheme == "tcp":
        host, _, port = rest.rpartition(":")
        host, is_beyond = _parse_host(text, host, binding)
        return _parse_port(text, host, port, binding, is_beyond)
    raise ConfigError(f"{text!r} is not an endpoint", "use tcp://127.0.0.1:PORT or ipc://PATH")


def is_wildcard(host: str) -> bool:
    """Whether a host stands for all addresses of a machine, so that nobody can connect to it."""
    if host == "*":
        return True
    address = _ip_of(host)
    return address is not None and address.is_unspecified


def listening_endpoint(host: str, port: int) -> str:
    """Return where a service listens that others reach at a host.

    That is the host itself if it is an IP address.  What a name stands for differs between machines (on its own
    one it is often 127.0.1.1), so with a name it is all of the machine's addresses.
    """
    address = _ip_of(host)
    if address is not None:
        host = f"[{address}]" if address.version == 6 else str(address)
    elif host == "localhost":
        host = LOOPBACK
    elif host != "*" and _NAME.fullmatch(host):
        host = "*"
    return f"tcp://{host or LOOPBACK}:{port or '*'}"


def local_endpoint(bound: str) -> str:
    """Return where a process of the same machine connects to a server that is bound there."""
    scheme, _, rest = bound.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not is_wildcard(host):
        return bound
    return f"tcp://{'[::1]' if host.startswith('[') else LOOPBACK}:{port}"


def reachable_endpoint(bound: str, host: str) -> str:
    """Return the endpoint that others are told: where a server is bound, at the host that it was given.

    Raises
    ------
    ConfigError
        If it listens on all addresses of its machine, and none was given to tell others.
    """
    scheme, _, rest = bound.partition("://")
    bound_host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not is_wildcard(bound_host):
        return bound
    if not host or is_wildcard(host):
        raise ConfigError(
            f"{bound} is no address that others can connect to",
            "--host=HOST with this machine's IP address or name, as the other machines know it",
        )
    address = _ip_of(host)
    return f"tcp://{f'[{address}]' if address is not None and address.version == 6 else host}:{port}"


def _parse_path(text: str, path: str) -> Endpoint:
    if not path or path[0] in "*@":
        raise ConfigError(
            f"{text!r} names no socket file", "write ipc://PATH, for example ipc:///tmp/job/ps-0"
        )
    size, most = len(os.fsencode(path)), MAX_PATH_BYTES
    if size > most:
        raise ConfigError(
            f"the socket path {path} has {size} bytes; the system allows {most}",
            "use a shorter folder, such as a new one in /tmp",
        )
    return Endpoint(f"ipc://{path}", path=path)


def _parse_host(text: str, host: str, binding: bool) -> tuple[str, bool]:
    """Return a host as ZeroMQ spells it, and whether it lies beyond this machine."""
    if host == "localhost":
        return LOOPBACK, False
    address = _ip_of(host)
    if address is not None and (address.version == 6) == host.startswith("["):
        if binding or not address.is_unspecified:
            return host, not address.is_loopback
        raise ConfigError(f"{text}: nobody can connect to {host}", "use the address of the server's machine")
    if binding and host == "*":
        return host, True
    if not binding and _NAME.fullmatch(host):
        return host, True
    what = "an IP address of this machine" if binding else "an IP address or the name of a machine"
    raise ConfigError(f"{text}: {host!r} is not {what}", "e.g. tcp://127.0.0.1:PORT or tcp://[::1]:PORT")


def _ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    return None


def _parse_port(text: str, host: str, port: str, binding: bool, is_beyond: bool) -> Endpoint:
    number = 0 if port == "*" else int(port) if port.isascii() and port.isdigit() else -1
    if not (0 if binding else 1) <= number <= 65535:
        raise ConfigError(f"{text}: {port!r} is not a port", f"use {0 if binding else 1} to 65535")
    return Endpoint(f"tcp://{host}:{number or '*'}", port=number, is_beyond=is_beyond)

"""Addresses on this machine, as a user writes them; the sockets themselves are `services/sockets.py`'s.

What lies beyond loopback and Unix sockets needs encryption, which this version does not have, and is refused.
"""

import contextlib
import ipaddress
import os
from dataclasses import dataclass
from typing import Final

from edlz.services.errors import ConfigError

__all__ = ["Endpoint", "parse_endpoint"]

MAX_PATH_BYTES: Final = 107  # of a Unix socket: sun_path, unix(7), without its closing zero


@dataclass(frozen=True)
class Endpoint:
    """An address on this machine, checked; `address` is how ZeroMQ spells it."""

    address: str
    path: str | None = None  # of a Unix socket
    port: int = 0  # of TCP; 0 is any free one

    @property
    def is_ipv6(self) -> bool:
        return self.address.startswith("tcp://[")


def parse_endpoint(text: str, *, binding: bool = False) -> Endpoint:
    """Check an endpoint: `tcp://127.0.0.1:PORT`, `tcp://localhost:PORT`, `tcp://[::1]:PORT` or `ipc://PATH`.

    Parameters
    ----------
    text : str
    binding : bool
        Whether a server will listen there; only then may the port be 0 or `*`, any free one.

    Raises
    ------
    ConfigError
        If it is none of these, lies beyond this machine, or the path is too long for a Unix socket.
    """
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "ipc":
        return _parse_path(text, rest)
    if separator and scheme == "tcp":
        host, _, port = rest.rpartition(":")
        return _parse_port(text, _loopback(text, host, binding), port, binding)
    raise ConfigError(f"{text!r} is not an endpoint", "use tcp://127.0.0.1:PORT or ipc://PATH")


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


def _loopback(text: str, host: str, binding: bool) -> str:
    """Return the loopback address that a host names, as ZeroMQ spells it."""
    if host == "localhost":
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        if address.is_loopback and (address.version == 6) == host.startswith("["):
            return host
    what = "binding" if binding else "connecting"
    raise ConfigError(
        f"{text}: {what} beyond this machine needs encryption, which this version does not have",
        "use 127.0.0.1 or ipc",
    )


def _parse_port(text: str, host: str, port: str, binding: bool) -> Endpoint:
    number = 0 if port == "*" else int(port) if port.isascii() and port.isdigit() else -1
    if not (0 if binding else 1) <= number <= 65535:
        raise ConfigError(f"{text}: {port!r} is not a port", f"use {0 if binding else 1} to 65535")
    return Endpoint(f"tcp://{host}:{number or '*'}", port=number)

"""Who holds a TCP port of this machine, for the error that says so."""

import socket
from dataclasses import dataclass
from pathlib import Path

from edlz.services.configuration.problems import Problem

__all__ = ["PortOwner", "port_owner", "port_problem"]

_LISTEN = "0A"  # /proc/net/tcp, see proc(5)


@dataclass(frozen=True, slots=True)
class PortOwner:
    """A process that listens on a port."""

    pid: int
    command: tuple[str, ...]


def port_problem(port: int) -> Problem | None:
    """Return the error that a port of the loopback is in use; None if it is free, or 0 (any)."""
    if port == 0 or _is_free(port):
        return None
    owner = port_owner(port)
    if owner is None:
        return Problem(f"port {port} is in use", "stop what listens there, or --port=0 for a free one")
    return Problem(
        f"port {port} is in use by {_description(owner)}", f"kill {owner.pid}, or --port=0 for a free one"
    )


def port_owner(port: int) -> PortOwner | None:
    """Return the process that listens on a port, as far as this user may see it (Linux only)."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) in sockets for link in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                return PortOwner(int(process.name), tuple(word.decode(errors="replace") for word in command))
        except OSError:
            continue  # another user's process, or one that has just ended
    return None


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _listening_inodes(port: int) -> list[str]:
    inodes = []
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        lines = table.read_text().splitlines()[1:] if table.exists() else []
        for line in lines:
            words = line.split()
            if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                inodes.append(words[9])
    return inodes


def _description(owner: PortOwner) -> str:
    """Return `job "mnist" (master, pid 4242)` for one of ours, else the program and its pid."""
    words = owner.command
    role = next((word.rpartition(".")[2] for word in words if word.startswith("edlz.services.")), "")
    name = next((word.partition("=")[2] for word in words if word.startswith("--job_name=")), "")
    if role:
        return f'job "{name}" ({role}, pid {owner.pid})' if name else f"an edlz {role} (pid {owner.pid})"
    return f"{Path(words[0]).name if words and words[0] else 'another program'} (pid {owner.pid})"

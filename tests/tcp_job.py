"""A job by hand as on several machines: its services listen on ports, and its connections can be seen."""

import os
import re
import socket
from pathlib import Path

from tests.processes import HandJob, wait_for

__all__ = ["TcpJob", "connections_of"]

ESTABLISHED = "01"  # as /proc/net/tcp has it


class TcpJob(HandJob):
    """A job whose services listen on ports."""

    def __init__(self, folder: Path, *flags: str, partitions: int) -> None:
        super().__init__(folder, *flags, partitions=partitions)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]

    def endpoint(self, name: str) -> str:
        return f"tcp://127.0.0.1:{self._port if name == 'master' else 0}"

    def listening_port(self, name: str) -> int:
        """Return the port at which a service is asked, once it listens; that of the master's page is another."""
        process = self.processes[name]

        def found() -> int | None:
            ports = _ports(process.pid, "0A")
            return next((port for port in ports if name != "master" or port == self._port), None)

        return int(wait_for(found, f"{name} listens"))


def connections_of(pid: int) -> set[int]:
    """Return the local ports of the connections that a process has over IPv4 (Linux)."""
    return _ports(pid, ESTABLISHED)


def _ports(pid: int, state: str) -> set[int]:
    links = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    sockets = {found[1] for link in links if (found := re.fullmatch(r"socket:\[(\d+)\]", link))}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == state and line[9] in sockets}

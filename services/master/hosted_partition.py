"""The one partition of a job without parameter servers, in the process of its master and behind the same address.

What it takes and gives is counted apart from its master's own messages, as if it were a process of its own.
"""

import signal
from asyncio import timeout
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

from edlz.services.configuration.endpoints import local_endpoint
from edlz.services.configuration.job_config import JobConfig
from edlz.services.process.runtime import Stop
from edlz.services.protocol.message_types import Message
from edlz.services.ps.service import PartitionService
from edlz.services.transport.rpc import RpcClient, RpcServer
from edlz.services.transport.security import Security
from edlz.services.transport.traffic import Traffic

__all__ = ["HostedPartition"]


class HostedPartition:
    """A partition whose requests come through another service's server.

    Parameters
    ----------
    config : JobConfig
        Of the master.
    server : RpcServer
        The master's.
    security : Security
        What the master lets in, and shows.
    folder : Path
        The job's.

    Attributes
    ----------
    traffic : Traffic
        Of its requests and answers.
    """

    def __init__(self, config: JobConfig, server: RpcServer, security: Security, folder: Path) -> None:
        self.traffic = Traffic()
        self._server, self._leave_s, self._stop = server, config.leave_secs, Stop()
        own = local_endpoint(server.endpoint)
        self._line = RpcClient(own, role="ps", identity="0", security=security)
        endpoint = config.reachable_at(server.endpoint)
        self._service = PartitionService(
            0, endpoint, self, self._line, folder, self._stop, traffic=self.traffic
        )

    async def run(self) -> None:
        """Serve until told to end."""
        await self._service.run()

    async def leave(self, master: Stop) -> None:
        """If its master was told to end by SIGTERM, save what it has first, as one in its own process."""
        if master.code != 128 + signal.SIGTERM:
            return
        self._service.leave(self._leave_s)
        with suppress(TimeoutError):
            async with timeout(self._leave_s):
                await self._stop.wait()

    def end(self, reason: str) -> None:
        """Let `run` return."""
        self._stop.set(0, reason)

    def close(self) -> None:
        self._service.close()
        self._line.close()

    def on_request(self, to: Hashable, body: Message) -> None:
        """Take a request that the server has just received."""
        self.traffic.bytes_in += self._server.traffic.newest_in
        self._service.on_request(to, body)

    def reply(self, to: Hashable, body: Message) -> None:
        """Answer one."""
        before = self._server.traffic.bytes_out
        self._server.reply(to, body)
        self.traffic.bytes_out += self._server.traffic.bytes_out - before

"""A worker's connections with the partitions, each made when something is first asked there."""

import logging

from edlz.services.configuration.endpoints import parse_endpoint
from edlz.services.configuration.job_config import JobConfig
from edlz.services.process.runtime import when_failed
from edlz.services.process.shell import Fail
from edlz.services.transport.rpc import RpcClient
from edlz.services.transport.security import Security

__all__ = ["Connections"]

logger = logging.getLogger(__name__)


class Connections:
    """Lines to partitions, by their numbers.

    Parameters
    ----------
    config : JobConfig
        The worker's.
    security : Security
    fail : callable
        Told of an error that ends a line.

    Attributes
    ----------
    server_role : str
        Of the processes that serve partitions: known with the job.
    """

    def __init__(self, config: JobConfig, security: Security, fail: Fail) -> None:
        self._config, self._security, self._fail = config, security, fail
        self._lines: dict[int, tuple[str, RpcClient]] = {}
        self.server_role = "ps"

    def to(self, index: int, endpoint: str) -> RpcClient:
        """Return the line to a partition; if it was elsewhere, what it was asked there is forgotten."""
        known = self._lines.get(index)
        if known is None or known[0] != endpoint:
            self.hang_up(index)
            known = self._lines[index] = (endpoint, self._connect(index, endpoint))
        return known[1]

    def hang_up(self, index: int) -> None:
        """Forget all requests to a partition, and close the line."""
        known = self._lines.pop(index, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        for index in list(self._lines):
            self.hang_up(index)

    def _connect(self, index: int, endpoint: str) -> RpcClient:
        if self._is_elsewhere(endpoint):
            logger.warning(
                "ps=%d says that it listens at %s, which is this machine; if it runs on another one"
                " start it with --host=HOST",
                index,
                endpoint,
            )
        line = RpcClient(
            endpoint,
            role="worker",
            identity=str(self._config.worker_id),
            security=self._security,
            server=self.server_role,
        )
        when_failed(line.failed, self._fail)
        return line

    def _is_elsewhere(self, endpoint: str) -> bool:
        """Whether a partition gives an address of its own machine, while the master is on another one."""
        return (
            parse_endpoint(self._config.master_endpoint).is_beyond and not parse_endpoint(endpoint).is_beyond
        )

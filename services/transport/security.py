"""Where the services of a job may meet, and with which keys.

One rule for a job: with keys, everything is encrypted and only who holds one of the job's keys is let in, on
loopback too.  Without keys, nothing is, and nothing leaves this machine, unless the user says that it may.
"""

import logging
from collections.abc import Collection
from pathlib import Path

import zmq

from edlz.services.configuration.endpoints import Endpoint, parse_endpoint
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, LocalProtocolError
from edlz.services.transport.keys import ROLES, RoleKeys, load_keys

__all__ = ["Security"]

logger = logging.getLogger(__name__)


class Security:
    """What one process has for its connections; by default nothing but this machine.

    Parameters
    ----------
    keys : RoleKeys, optional
        Encrypt every connection with them.
    is_open : bool
        Connect beyond this machine without keys; the first time is logged as a warning.
    lets_in : collection of str
        The roles whose keys this process's own server takes.
    """

    def __init__(
        self,
        keys: RoleKeys | None = None,
        *,
        is_open: bool = False,
        lets_in: Collection[str] = ROLES,
    ) -> None:
        self.keys = keys
        self._is_open, self._lets_in = is_open, lets_in
        self._has_warned = False

    @classmethod
    def of(cls, config: JobConfig, role: str) -> "Security":
        """Return what `--keys_dir` and `--transport_security` give a process of a role.

        Raises
        ------
        ConfigError
            If the keys cannot be used.
        """
        keys = load_keys(Path(config.keys_dir), role) if config.keys_dir else None
        return cls(keys, is_open=config.transport_security == "none")

    def admit(self, endpoint: str, *, binding: bool = False) -> Endpoint:
        """Return an endpoint, checked, if this process may listen there, or connect to it.

        Raises
        ------
        ConfigError
            If it is not an endpoint (see parse_endpoint), or lies beyond this machine and there are no keys.
        """
        place = parse_endpoint(endpoint, binding=binding)
        if place.is_beyond and self.keys is None:
            what = "binding" if binding else "connecting"
            if not self._is_open:
                raise ConfigError(
                    f"{endpoint}: {what} beyond this machine needs encryption",
                    "--keys_dir=DIR with the job's keys (edlz keys DIR makes them), or, if everybody on the network"
                    " may read and change the job, --transport_security=none",
                )
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "NOT ENCRYPTED: %s at %s with transport_security=none; whoever reaches it can read and change"
                    " the job",
                    what,
                    endpoint,
                )
        return place

    def letting_in(self, *roles: str) -> "Security":
        """Return the same for a server that takes the keys of these roles alone."""
        return Security(self.keys, is_open=self._is_open, lets_in=roles)

    @property
    def admitted(self) -> dict[str, bytes]:
        """The public keys (role: Z85) that this process's own server takes."""
        public = self._needed_keys.public
        return {role: key for role, key in public.items() if role in self._lets_in}

    def guard_server(self, server: "zmq.Socket[bytes]", domain: bytes) -> None:
        """Make a server's socket let in only whom the ZAP handler knows under a domain."""
        keys = self._needed_keys
        server.setsockopt(zmq.CURVE_SERVER, 1)
        server.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret)
        server.setsockopt(zmq.ZAP_DOMAIN, domain)
        server.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # nobody is let in while there is no handler

    def guard_client(self, client: "zmq.Socket[bytes]", server: str) -> None:
        """Make a client's socket talk to nobody but this job's server of a role."""
        keys = self._needed_keys
        client.setsockopt(zmq.CURVE_SERVERKEY, keys.public[server])
        client.setsockopt(zmq.CURVE_PUBLICKEY, keys.own.public)
        client.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret)

    @property
    def _needed_keys(self) -> RoleKeys:
        if self.keys is None:
            raise LocalProtocolError("there are no keys to guard a socket with")
        return self.keys

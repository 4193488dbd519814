"""The objects that a master makes for its job: pods and services of its services, the secret with their keys.

It needs the `kubernetes` package.  Whoever imports it has made a connection before, which says what to install if
that is missing.
"""

import dataclasses
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.cluster.names import Owner, pod_name, secret_name, selector, service_name
from edlz.k8s.flags.cluster_spec import load_cluster_spec
from edlz.k8s.flags.priorities import next_worker_class
from edlz.k8s.objects.pods import service_pod
from edlz.k8s.objects.ps_service import ps_service
from edlz.k8s.objects.secret import keys_secret
from edlz.k8s.objects.worker_memory import more_memory
from edlz.services.configuration.job_config import JobConfig
from edlz.services.supervision.launcher import is_worker, split_name

__all__ = ["JobObjects", "Spec", "job_objects"]

_MASTER_ADDR = "--master_addr="


class Spec(Protocol):
    """What a cluster wants of pods and services beyond the flags: a ClusterSpec."""

    def pod(self, pod: Any, role: str) -> Any: ...

    def service(self, service: Any) -> Any: ...


@dataclasses.dataclass(frozen=True)
class JobObjects:
    """Makes the objects of one job, as its settings and its cluster want them.

    Attributes
    ----------
    owner : Owner
        The master pod.
    master_addr : str
        HOST:PORT of the master.
    spec : Spec
        What `--cluster_spec` changes.
    """

    config: JobConfig
    owner: Owner
    master_addr: str
    spec: Spec

    @property
    def selector(self) -> str:
        """The labels of everything that belongs to the job."""
        return selector(self.config.job_name)

    @property
    def secret_name(self) -> str:
        return secret_name(self.config.job_name)

    def pod_name(self, name: str) -> str:
        """Return a pod's name from its service's: worker-3."""
        return pod_name(self.config.job_name, name)

    def service_name(self, name: str) -> str:
        """Return the name of the service before a parameter server: ps-0."""
        return service_name(self.config.job_name, split_name(name)[1])

    def pod(self, name: str, *, memory: str | None, workers: int, classes: Sequence[str]) -> Any:
        """Return the pod of a service.

        Parameters
        ----------
        name : str
            `ps-0` or `worker-3`.
        memory : str, optional
            A worker's limit of memory, if another one than in the settings.
        workers : int
            How many of them are wanted.
        classes : sequence of str
            The priority classes of the workers that are there.
        """
        priority = next_worker_class(self.config, workers, classes) if is_worker(name) else None
        pod = service_pod(
            self.config,
            name,
            owner=self.owner,
            master_addr=self.master_addr,
            memory=memory if is_worker(name) else None,
            priority=priority,
        )
        return self.spec.pod(pod, split_name(name)[0])

    def service(self, name: str) -> Any:
        """Return the service before a parameter server: ps-0."""
        return self.spec.service(ps_service(self.config, split_name(name)[1], self.owner))

    def secret(self, keys: Mapping[str, bytes]) -> Any:
        """Return the secret with the files of keys."""
        return keys_secret(self.config, keys, self.owner)

    def is_astray(self, pod: Pod) -> bool:
        """Whether a pod looks for the master at an address that it had before its node was started anew.

        A name that a --cluster_spec has put in the place of an address is left alone.
        """
        words = [word for word in pod.container.command or () if word.startswith(_MASTER_ADDR)]
        told = {word.removeprefix(_MASTER_ADDR) for word in words}
        return any(address != self.master_addr and _is_numeric(address) for address in told)

    def more_memory(self, last: str | None) -> str | None:
        """Return the memory of the worker that comes after one with `last` ran out of it."""
        return more_memory(self.config, last)


def job_objects(config: JobConfig, owner: Owner, master_addr: str) -> JobObjects:
    """Return the objects of a job, as its --cluster_spec changes them: it is the user's code, and runs here."""
    return JobObjects(config, owner, master_addr, load_cluster_spec(config))


def _is_numeric(address: str) -> bool:
    """Whether the host of HOST:PORT is an IP address."""
    try:
        ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return True

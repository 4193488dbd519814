"""The objects that a master makes for its job: pods and services of its services, the secret with their keys.

It needs the `kubernetes` package.  Whoever imports it has made a connection before, which says what to install if
that is missing.
"""

import base64
import dataclasses
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kubernetes import client

from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.cluster.names import (
    MASTER,
    PS_PORT,
    Owner,
    labels,
    pod_name,
    secret_name,
    selector,
    service_name,
)
from edlz.k8s.flags.cluster_spec import load_cluster_spec
from edlz.k8s.flags.priorities import next_worker_class
from edlz.k8s.objects.pods import metadata, service_pod
from edlz.k8s.objects.worker_memory import more_memory
from edlz.services.configuration.job_config import JobConfig
from edlz.services.supervision.launcher import is_worker, split_name

__all__ = ["JobObjects", "Spec", "job_objects", "keys_secret", "ps_service"]

_MASTER_ADDR = "--master_addr="
_SELECTED = ("app", "elasticdl-job-name", "elasticdl-replica-type", "elasticdl-replica-index")


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
    def job_name(self) -> str:
        return self.config.job_name

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


def ps_service(config: JobConfig, index: int, owner: Owner) -> client.V1Service:
    """Return the service of a parameter server.

    Its annotations are its labels once more: a --cluster_spec may change either.

    Parameters
    ----------
    owner : Owner
        The master pod.
    """
    own = labels(config.job_name, f"ps-{index}")
    return client.V1Service(
        api_version="v1",
        kind="Service",
        metadata=metadata(
            config, service_name(config.job_name, index), f"ps-{index}", owner, annotations=own
        ),
        spec=client.V1ServiceSpec(
            selector={name: own[name] for name in _SELECTED},
            ports=[client.V1ServicePort(name="ps", port=PS_PORT, target_port=PS_PORT, protocol="TCP")],
        ),
    )


def keys_secret(config: JobConfig, keys: Mapping[str, bytes], owner: Owner) -> client.V1Secret:
    """Return the secret with files of keys.

    Parameters
    ----------
    keys : mapping
        Contents by file name.
    owner : Owner
        The master pod.
    """
    return client.V1Secret(
        api_version="v1",
        kind="Secret",
        type="Opaque",
        immutable=True,
        metadata=metadata(config, secret_name(config.job_name), MASTER, owner),
        data={name: base64.b64encode(content).decode() for name, content in sorted(keys.items())},
    )


def _is_numeric(address: str) -> bool:
    """Whether the host of HOST:PORT is an IP address."""
    try:
        ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return True

"""The service of a parameter server: an address that stays when its pod is replaced."""

from kubernetes import client

from edlz.k8s.cluster.names import PS_PORT, Owner, labels, service_name
from edlz.k8s.objects.metadata import metadata
from edlz.services.configuration.job_config import JobConfig

__all__ = ["ps_service"]

_SELECTED = ("app", "elasticdl-job-name", "elasticdl-replica-type", "elasticdl-replica-index")


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

"""One pod of each role, as a job would have them: what a cluster is asked about before the job is there."""

from kubernetes import client

from edlz.k8s.cluster.names import MASTER, MASTER_PORT, Owner, pod_name
from edlz.k8s.flags.cluster_spec import ClusterSpec
from edlz.k8s.objects.pods import master_pod, service_pod, settings_in_pods
from edlz.services.configuration.job_config import JobConfig

__all__ = ["pods_of_roles"]

_NOT_YET = "not-yet-known"  # the uid of a master that is still to be created
_SOMEWHERE = "127.0.0.1"


def pods_of_roles(config: JobConfig, image: str, spec: ClusterSpec) -> dict[str, client.V1Pod]:
    """Return pods by role, the master's first, which is the one to create."""
    pods = {MASTER: spec.pod(master_pod(config, image), MASTER)}
    settings, owner = settings_in_pods(config, image), Owner(pod_name(config.job_name, MASTER), _NOT_YET)
    for role in (("ps",) if config.num_ps_pods else ()) + ("worker",):
        address = f"{_SOMEWHERE}:{MASTER_PORT}"
        pod = service_pod(settings, f"{role}-0", owner=owner, master_addr=address, environ={})
        pods[role] = spec.pod(pod, role)
    return pods

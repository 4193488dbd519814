"""The metadata of a job's objects: names, labels, and who owns them."""

from collections.abc import Mapping

from kubernetes import client

from edlz.k8s.cluster.names import Owner, labels
from edlz.services.configuration.job_config import JobConfig

__all__ = ["metadata"]


def metadata(
    config: JobConfig,
    object_name: str,
    name: str,
    owner: Owner | None,
    *,
    annotations: Mapping[str, str] | None = None,
    **more_labels: str,
) -> client.V1ObjectMeta:
    """Return the metadata of an object.

    Parameters
    ----------
    object_name : str
        The object's own name.
    name : str
        The pod that it is, or belongs to: master, ps-0, worker-3.
    owner : Owner, optional
        The pod whose end removes it; None for the master pod itself.
    """
    references = None
    if owner is not None:
        references = [
            client.V1OwnerReference(
                api_version="v1",
                kind="Pod",
                name=owner.name,
                uid=owner.uid,
                controller=True,
                block_owner_deletion=True,
            )
        ]
    return client.V1ObjectMeta(
        name=object_name,
        namespace=config.namespace or None,
        labels={**labels(config.job_name, name), **more_labels},
        annotations=dict(annotations or {}),
        owner_references=references,
    )

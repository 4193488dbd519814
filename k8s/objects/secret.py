"""The secret with a job's keys, which its parameter servers and workers mount."""

import base64
from collections.abc import Mapping

from kubernetes import client

from edlz.k8s.cluster.names import MASTER, Owner, secret_name
from edlz.k8s.objects.metadata import metadata
from edlz.services.configuration.job_config import JobConfig

__all__ = ["keys_secret"]


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

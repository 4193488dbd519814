"""The keys of a job on a cluster: made by its master pod, kept in its memory, handed on by the secret."""

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import AlreadyExists
from edlz.k8s.cluster.names import MASTER_KEYS_DIR
from edlz.services.configuration.job_config import JobConfig
from edlz.services.storage.durable import replace_file
from edlz.services.transport.keys import PUBLIC_FILE, JobKeys, job_keys_in, secret_file

if TYPE_CHECKING:  # it needs the kubernetes package
    from edlz.k8s.objects.job_objects import JobObjects

__all__ = ["hand_on_keys", "with_keys"]

_HANDED_ON = "keys-are-in-the-secret-of"  # a file beside the keys: the uid of the pod that owns the secret

logger = logging.getLogger(__name__)


def with_keys(config: JobConfig) -> tuple[JobConfig, JobKeys | None]:
    """Return the settings with the folder of the job's keys, and the keys, made now if there are none.

    No keys are made with `--transport_security=none`.

    Raises
    ------
    ConfigError
        If the folder cannot be written, or holds keys that are damaged.
    """
    if config.transport_security == "none":
        logger.warning("transport_security=none: whoever reaches these pods can read and change the job")
        return config, None
    folder = Path(config.keys_dir or MASTER_KEYS_DIR)
    return dataclasses.replace(config, keys_dir=str(folder)), job_keys_in(folder)


async def hand_on_keys(cluster: Cluster, objects: "JobObjects", keys: JobKeys, folder: Path) -> None:
    """Put the keys of the job's parameter servers, if it has any, and workers into its secret; `folder` is that of the keys.

    A secret of that name that an earlier life of this master has made is right: the keys are the same.  One
    of an older master pod goes away with it, so another takes its place.

    Raises
    ------
    EdlzError
        If the cluster does not take it.
    """
    roles = ("ps", "worker") if objects.config.num_ps_pods else ("worker",)
    names = {PUBLIC_FILE, *map(secret_file, roles)}
    files = {name: content for name, content in keys.files().items() if name in names}
    mark = folder.parent / _HANDED_ON
    try:
        await cluster.create(objects.secret(files))
    except AlreadyExists:
        if _is_marked(mark, objects.owner.uid):
            return
        await cluster.delete("Secret", objects.secret_name)
        await cluster.create(objects.secret(files))
    try:
        replace_file(mark, objects.owner.uid)
    except OSError as error:  # the next life of this master makes the secret anew
        logger.warning("%s could not be written: %s", mark, error)


def _is_marked(mark: Path, uid: str) -> bool:
    try:
        return mark.read_bytes() == uid.encode()
    except OSError:
        return False

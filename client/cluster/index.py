"""Which jobs were submitted to a cluster from this machine.

    EDLZ_HOME/cluster-jobs/<job>/<hash>.json    one submission: context, namespace, settings

Knows nothing of Kubernetes: whether the job is still there is `look`'s affair.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from edlz.client.job_files.job_index import NoSuchJob
from edlz.services import strict_json
from edlz.services.configuration.job_config import edlz_home
from edlz.services.protocol.message_types import Finite
from edlz.services.storage.durable import replace_file

__all__ = ["Place", "forget_place", "list_places", "no_job_there", "place_of", "places_of", "remember_place"]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is on a cluster.

    Attributes
    ----------
    name : str
        Of the job.
    namespace : str
        Where its pods are.
    context : str
        Of the kubeconfig, when it was submitted; the current one if empty.
    settings : str
        Those that it was submitted with, as YAML; nothing if that was done elsewhere.
    cluster_spec : str
        The text of the file of --cluster_spec.
    job_dir : str
        Where its files lie on a volume, so that it can go on without its pods; nothing if they do not.
    submitted_at : Finite
        Seconds since the epoch; 0 if that was done elsewhere.
    """

    name: str
    namespace: str
    context: str = ""
    settings: str = ""
    cluster_spec: str = ""
    job_dir: str = ""
    submitted_at: Finite = 0.0

    @property
    def is_from_here(self) -> bool:
        """Whether it was submitted from this machine."""
        return bool(self.submitted_at)

    @property
    def word(self) -> str:
        """What finds it on a command line, on any machine."""
        return f"{self.name} -n {self.namespace}"


def list_places() -> list[Place]:
    """Return where all jobs are that were submitted from here, by name."""
    return [place for name in _names() for place in _read(name)]


def places_of(name: str) -> list[Place]:
    """Return where the jobs of a name are that were submitted from here, the newest first."""
    found = _read(name) if _NAME.fullmatch(name) else ()
    return sorted(found, key=lambda place: -place.submitted_at)


def place_of(name: str, namespace: str) -> Place:
    """Return where a job of a namespace is: in the context of its last submission from here, or the current one."""
    for place in places_of(name):
        if place.namespace == namespace:
            return place
    return Place(name=name, namespace=namespace)


def remember_place(place: Place) -> None:
    """Note a submission.

    A home that cannot be written to only means that the job is found by its namespace alone.
    """
    with suppress(OSError):
        entry = _entry(place)
        _folder().mkdir(mode=0o700, parents=True, exist_ok=True)  # --envs may hold what is secret
        entry.parent.mkdir(exist_ok=True)
        replace_file(entry, msgspec.json.encode(place))


def forget_place(place: Place) -> None:
    """Take a job out of the index."""
    entry = _entry(place)
    with suppress(OSError):
        entry.unlink(missing_ok=True)
        entry.parent.rmdir()  # if that was the last of its name


def _read(name: str) -> Iterator[Place]:
    for entry in sorted((_folder() / name).glob("*.json")):
        with suppress(OSError, msgspec.DecodeError):
            yield strict_json.decode(entry.read_bytes(), Place)


def _names() -> list[str]:
    try:
        return sorted(name for name in os.listdir(_folder()) if _NAME.fullmatch(name))
    except OSError:
        return []


def _entry(place: Place) -> Path:
    """Return its file; a context may hold letters that no file's name has."""
    where = hashlib.sha256(f"{place.context}\0{place.namespace}".encode()).hexdigest()[:12]
    return _folder() / place.name / f"{where}.json"


def _folder() -> Path:
    return edlz_home() / "cluster-jobs"


def no_job_there(at: Place) -> NoSuchJob:
    """Return the error that a namespace holds no such job."""
    return NoSuchJob(f'no job "{at.name}" in k8s/{at.namespace}', f"edlz ls -n {at.namespace}")

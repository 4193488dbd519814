"""What the objects of a job are called on a cluster: pods, services, secret, labels, annotations, folders.

Names are those that users of the older tool know (`elasticdl-<job>-worker-0`), so what they `grep` and
select by goes on working.
"""

from dataclasses import dataclass

from edlz.services.supervision.launcher import split_name

__all__ = [
    "ALL_JOBS",
    "CLUSTER_SPEC",
    "CONFIG",
    "JOB_DIR",
    "JOB_LABEL",
    "KEYS_DIR",
    "MASTER",
    "MASTER_KEYS_DIR",
    "MASTER_PORT",
    "MEMBER_PORT",
    "PS_PORT",
    "STATUS",
    "STATUS_PORT",
    "STOP",
    "SUBMISSION",
    "WORKERS",
    "Owner",
    "labels",
    "pod_name",
    "secret_name",
    "selector",
    "service_name",
    "short_name",
]

STATUS = "edlz.io/status"
"""Annotation of the master pod: the job's status as JSON."""
WORKERS = "edlz.io/workers"
"""Annotation of the master pod: the number of workers wanted."""
STOP = "edlz.io/stop"
"""Annotation of the master pod: `save` for an orderly stop with a checkpoint."""
CONFIG = "edlz.io/config"
"""Annotation of the master pod: the job's settings as YAML."""
CLUSTER_SPEC = "edlz.io/cluster-spec"
"""Annotation of the master pod: the text of the file of --cluster_spec."""
SUBMISSION = "edlz.io/submission"
"""Annotation of the master pod: a random word, by which a submission knows the pod that it has made."""

MASTER = "master"
MASTER_PORT, STATUS_PORT, PS_PORT = 50001, 50002, 2222
MEMBER_PORT = PS_PORT
"""Of a worker whose job has no parameter servers: other workers, and the master, ask it there."""
JOB_DIR = "/var/lib/edlz/job"
KEYS_DIR = "/var/run/edlz/keys"
MASTER_KEYS_DIR = f"{KEYS_DIR}/job"
"""Where the master makes the keys of all roles: its pod's own memory, never a volume that others mount."""

_PREFIX = "elasticdl"
JOB_LABEL = "elasticdl-job-name"
ALL_JOBS = f"app={_PREFIX}"
"""Label selector of everything that belongs to any job."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The pod whose end removes an object too: the job's master pod."""

    name: str
    uid: str


def pod_name(job: str, name: str) -> str:
    """Return the name of a pod and of its container; `name` is master, ps-0, worker-3."""
    return f"{_PREFIX}-{job}-{name}"


def short_name(job: str, pod: str) -> str:
    """Return what `pod_name` was made of: master, ps-0, worker-3."""
    return pod.removeprefix(f"{_PREFIX}-{job}-")


def service_name(job: str, index: int) -> str:
    """Return the name of the service of a parameter server."""
    return pod_name(job, f"ps-{index}")


def secret_name(job: str) -> str:
    """Return the name of the secret with the job's keys."""
    return pod_name(job, "keys")


def labels(job: str, name: str) -> dict[str, str]:
    """Return the labels of an object that belongs to the pod `name`: master, ps-0, worker-3."""
    role, index = split_name(name)
    return {
        "app": _PREFIX,
        "elasticdl_job_name": job,
        JOB_LABEL: job,
        "elasticdl-replica-type": role,
        "elasticdl-replica-index": str(index),
        "app.kubernetes.io/name": "edlz",
        "app.kubernetes.io/instance": job,
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/managed-by": "edlz",
    }


def selector(job: str) -> str:
    """Return the label selector, as the API and `kubectl -l` take it, of everything that belongs to a job."""
    return f"{ALL_JOBS},{JOB_LABEL}={job}"

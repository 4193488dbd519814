"""Whether a cluster's rules would take a job's pods: each role's is shown to the API server, which creates nothing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from edlz.k8s.cluster.api_errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    NotFound,
    NotPermitted,
    is_quota_used_up,
)
from edlz.services.errors import EdlzError

if TYPE_CHECKING:
    from edlz.k8s.cluster.api import Cluster

__all__ = ["Verdict", "pods_verdict"]

Verdict = tuple[Literal["no", "later"], str, str]  # mark, text, help
_TOLD_ELSEWHERE = (
    AlreadyExists,
    NotFound,
    NotPermitted,
)  # by the checks of the name, the namespace, the rights
_OF_CLASSES = "PriorityClass"


async def pods_verdict(cluster: "Cluster", pods: Mapping[str, Any]) -> Verdict | None:
    """Return why the cluster would not take a pod of the job; None if it would take them all.

    Parameters
    ----------
    pods : mapping
        By role, the master's first: what refuses it mostly refuses the others too, so only the first is told.
    """
    for role, pod in pods.items():
        try:
            await cluster.create(pod, dry_run=True, patience_s=0)
        except _TOLD_ELSEWHERE:
            continue
        except EdlzError as error:
            if isinstance(error, Forbidden) and _OF_CLASSES in error.message:
                continue  # told by the check of the classes
            if is_quota_used_up(error) and role != "master":
                continue  # it waits for others to go
            if isinstance(error, Forbidden | Invalid):
                return "no", error.message, error.help
            text = f"whether the cluster's rules take the {role} cannot be seen from here: {error.message}"
            return "later", text, error.help
    return None

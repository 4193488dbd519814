"""What somebody may do in a namespace, and who one is, as the API server sees it."""

from typing import Any

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import Forbidden, NotFound

__all__ = ["may", "user_name"]


async def may(
    cluster: Cluster, verb: str, resource: str, subresource: str = "", *, account: str = ""
) -> bool:
    """Return whether one may do something in the namespace.

    Parameters
    ----------
    account : str
        A service account of the namespace; whoever asks, if empty.
    """
    wanted = {"namespace": cluster.namespace, "verb": verb, "resource": resource}
    wanted |= {"subresource": subresource} if subresource else {}
    spec: dict[str, Any] = {"resourceAttributes": wanted}
    if account:
        spec["user"] = f"system:serviceaccount:{cluster.namespace}:{account}"
        of_namespace = f"system:serviceaccounts:{cluster.namespace}"
        spec["groups"] = ["system:serviceaccounts", of_namespace, "system:authenticated"]
    kind = "LocalSubjectAccessReview" if account else "SelfSubjectAccessReview"
    return bool((await cluster.review(kind, spec)).get("allowed"))


async def user_name(cluster: Cluster) -> str:
    """Return the name by which the cluster knows whoever asks; nothing if it does not say (before 1.28)."""
    try:
        known = await cluster.review("SelfSubjectReview")
    except (Forbidden, NotFound):
        return ""
    return str(known.get("userInfo", {}).get("username", ""))

"""What is known here of a job's image before a node pulls it: its platform, and names that are like it."""

from collections.abc import Collection, Mapping
from typing import Any, Literal

from edlz.client.images.daemon import LocalImage

__all__ = ["architectures_of", "image_verdict"]

_PULLED = "its pull is seen when the master starts"


def image_verdict(
    image: str, here: LocalImage | None, architectures: Collection[str], pull_policy: str
) -> tuple[Literal["ok", "warn", "no"], str, str]:
    """Return mark, text and help of the check.

    Parameters
    ----------
    here : LocalImage, optional
        What the Docker daemon of this machine knows; None without one.
    architectures : collection of str
        Of the nodes, as far as they are known.
    pull_policy : str
        --image_pull_policy.
    """
    architecture = here.platform.rpartition("/")[2] if here is not None else ""
    if architecture and architectures and architecture not in architectures:
        text = f"{image} is {architecture}, the nodes are {' and '.join(sorted(architectures))}"
        return "no", text, f"edlz zoo build --platform=linux/{min(architectures)}"
    if pull_policy == "Never":
        return "ok", f"{image}; each node must have it (--image_pull_policy=Never)", ""
    seen = f"{image} is {architecture}; its" if architecture else f"{image}; its"
    if here is not None and not architecture and here.near:
        return "warn", f"{image} is not on this machine, {here.near[0]} is; {_PULLED}", ""
    return "ok", f"{seen} {_PULLED.removeprefix('its ')}", ""


def architectures_of(nodes: Collection[Mapping[str, Any]]) -> set[str]:
    """Return the architectures of nodes: amd64, arm64."""
    found = {str(node.get("status", {}).get("nodeInfo", {}).get("architecture", "")) for node in nodes}
    return found - {""}

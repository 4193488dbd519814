"""What is known here of a job's image before a node pulls it: its platform, and names that are like it."""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

from edlz.client.images.daemon import LocalImage

__all__ = ["architectures_of", "image_verdict", "in_thread"]

_PULLED = "its pull is seen when the master starts"
_T = TypeVar("_T")


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


async def in_thread(call: Callable[[], _T]) -> _T:
    """Return what a call gives that may block, in a thread that nobody waits for when it is late."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def tell(result: _T) -> None:
        if not answer.done():
            answer.set_result(result)

    def run() -> None:
        result = call()
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, result)

    threading.Thread(target=run, name="look up image", daemon=True).start()
    return await answer

"""Deleting a job's pods: its master's, and with it all that it owns; also where their nodes do not answer any more."""

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from edlz.k8s.cluster.api_errors import NotFound
from edlz.k8s.cluster.api_records import Pod
from edlz.k8s.cluster.names import MASTER, pod_name, selector, short_name
from edlz.k8s.pods.pod_exits import is_out_of_reach
from edlz.k8s.pods.stuck_pods import StuckPods
from edlz.services.errors import PeerUnavailable

if TYPE_CHECKING:
    from edlz.k8s.cluster.api import Cluster

__all__ = ["NOW_S", "delete_master", "delete_pods"]

POLL_S = 0.25
NOW_S = 1.0  # that a master has which is not to save anything
GONE_S = 60.0  # that pods have to go


async def delete_master(cluster: "Cluster", job: str) -> bool:
    """Delete a master's pod, by force if its node does not answer; return whether it was there, when it is gone.

    What it owns goes after it.

    Raises
    ------
    PeerUnavailable
        If it does not go.
    """
    name, stuck = pod_name(job, MASTER), StuckPods()
    try:
        pod = await cluster.get_pod(name)
    except NotFound:
        return False
    uid = pod.uid
    await cluster.delete("Pod", name, grace_s=NOW_S if is_out_of_reach(pod) else None, uid=uid)
    end = time.monotonic() + GONE_S
    while time.monotonic() < end:
        try:
            pod = await cluster.get_pod(name)
        except NotFound:
            return True
        if pod.uid != uid:  # somebody has begun it anew
            return True
        await _force(cluster, stuck, (pod,))
        await asyncio.sleep(POLL_S)
    raise PeerUnavailable(
        f"{name} is still there {GONE_S:.0f}s after it was deleted", f"kubectl describe pod {name}"
    )


async def delete_pods(cluster: "Cluster", job: str) -> list[str]:
    """Delete a master's pod at once, and see what it owns go; return what there is to say of it."""
    name, stuck, forced = pod_name(job, MASTER), StuckPods(), dict[str, None]()
    left: tuple[Pod, ...] = ()
    await cluster.delete("Pod", name, grace_s=NOW_S)
    end = time.monotonic() + GONE_S
    while left := (await cluster.list_pods(selector(job))).items:
        forced |= dict.fromkeys(await _force(cluster, stuck, left))
        # Whose node answers goes by itself; the master's own end is waited for, and that of what is to be forced.
        if not any(pod.name == name or is_out_of_reach(pod) for pod in left) or time.monotonic() > end:
            break
        await asyncio.sleep(POLL_S)
    said = []
    if forced:
        names = ", ".join(short_name(job, pod) for pod in forced)
        said.append(f"deleted by force, since their nodes do not answer: {names}")
    if lost := [short_name(job, pod.name) for pod in left if pod.name == name or is_out_of_reach(pod)]:
        said.append(f"still there after {GONE_S:.0f}s: {', '.join(lost)}")
    return said


async def _force(cluster: "Cluster", stuck: StuckPods, pods: Iterable[Pod]) -> list[str]:
    """Delete without their nodes the pods that cannot go otherwise; return their names."""
    found = stuck.find(pods, time.monotonic())
    for pod in found:
        await cluster.delete("Pod", pod.name, grace_s=0.0, uid=pod.uid)
    return [pod.name for pod in found]

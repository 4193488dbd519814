"""What this machine can reach: a Docker daemon, and the cluster of the kubeconfig."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from edlz.client.cluster.checks import check_access
from edlz.client.cluster.connection import connected
from edlz.client.cluster.index import Place
from edlz.client.images.daemon import Address, Daemon
from edlz.client.screen.checks import Check
from edlz.client.screen.wording import duration
from edlz.services.errors import EdlzError

__all__ = ["LIMIT_S", "check_cluster_access", "check_docker"]

LIMIT_S = 8.0  # for the cluster, with the command by which a kubeconfig logs in
FAR_CLOCK_S = 5.0
_SOCKET = Path("/var/run/docker.sock")


def check_docker() -> Check:
    """Return whether a Docker daemon answers; only images need one."""
    is_expected = bool(os.environ.get("DOCKER_HOST")) or _SOCKET.exists()
    try:
        daemon = Daemon.connect(Address())
    except EdlzError as error:
        if is_expected:
            return Check("warn", "docker", error.message, error.help)
        return Check("info", "docker", "no daemon here: one is needed to build images, not to train")
    try:
        return Check("ok", "docker", f"a daemon answers, {daemon.platform}")
    finally:
        daemon.close()


def check_cluster_access() -> Sequence[Check]:
    """Return whether the kubeconfig's cluster answers, and what may be done there."""
    named = os.environ.get("KUBECONFIG", "")
    is_inside = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    if not named and not is_inside and not (Path.home() / ".kube" / "config").exists():
        return [Check("info", "cluster", "no kubeconfig here: jobs run on this machine")]
    try:
        return asyncio.run(_asked())
    except EdlzError as error:
        return [Check("no", "cluster", error.message, error.help)]
    except TimeoutError:
        text = f"no answer within {LIMIT_S:.0f}s"
        return [Check("no", "cluster", text, "kubectl cluster-info; kubectl config get-contexts")]


async def _asked() -> list[Check]:
    async with asyncio.timeout(LIMIT_S), connected(Place(name="", namespace=""), patience_s=0) as cluster:
        found = await check_access(cluster)
        where = Check("info", "context", f"{cluster.context or 'this pod'}, namespace {cluster.namespace}")
        return [where, *found, *_clock(cluster.clock.ahead_s)]


def _clock(ahead_s: float) -> Sequence[Check]:
    """Warn of a clock that is not the cluster's: certificates, tokens and ages depend on it."""
    if abs(ahead_s) < FAR_CLOCK_S:
        return []
    way = "behind" if ahead_s > 0 else "ahead of"
    text = f"this machine's clock is {duration(abs(ahead_s))} {way} the cluster's"
    return [Check("warn", "clock", text, "let it follow a time server: timedatectl set-ntp true")]

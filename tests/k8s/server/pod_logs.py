"""The log subresource of pods: what the API server asks a kubelet for, line by line."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from tests.k8s.server.objects.errors import bad_request, not_found
from tests.k8s.server.objects.history import Object
from tests.k8s.server.objects.kinds import RESOURCES

__all__ = ["ContainerLog", "Kubelet", "ListedLog", "log_of", "log_text"]

_POLL_S = 0.05


class ContainerLog(Protocol):
    """What a container has written. Both methods are called in the server's thread and must not block."""

    def lines(self, start: int) -> Sequence[tuple[float, bytes]]:
        """Return the lines from number `start` on: when each was written (Unix time, s), text with its newline."""
        ...

    def is_ended(self) -> bool:
        """Say whether no line will follow."""
        ...


# (namespace, pod, container, previous) -> its log; raises ApiError
Kubelet = Callable[[str, str, str, bool], ContainerLog]


class ListedLog:
    """A log in memory."""

    def __init__(self, lines: Iterable[tuple[float, bytes]] = (), *, is_ended: bool = True) -> None:
        self.written, self.ended = list(lines), is_ended

    def lines(self, start: int) -> Sequence[tuple[float, bytes]]:
        return self.written[start:]

    def is_ended(self) -> bool:
        return self.ended


def log_of(kubelets: dict[str, Kubelet], pod: Object, query: Any) -> ContainerLog:
    """Return the log that a request names.

    Raises
    ------
    ApiError
        400, if the container is not said or not there; 404, if the pod's node has no kubelet.
    """
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    names = [c["name"] for c in pod["spec"]["containers"]]
    known = [*names, *(c["name"] for c in pod["spec"].get("initContainers", ()))]
    container = query.get("container", "")
    if not container:
        if len(names) > 1:
            raise bad_request(
                f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
            )
        container = names[0]
    if container not in known:
        raise bad_request(f"container {container} is not valid for pod {name}")
    node = pod["spec"].get("nodeName", "")
    if not node:
        return ListedLog()
    if node not in kubelets:
        raise not_found(RESOURCES["pods"], node)
    return kubelets[node](namespace, name, container, query.get("previous") in ("true", "1"))


async def log_text(log: ContainerLog, query: Any) -> AsyncIterator[bytes]:
    """Yield the log's text as the query's tailLines, sinceSeconds, timestamps, limitBytes and follow ask."""
    left = int(query["limitBytes"]) if query.get("limitBytes") else None
    has_times = query.get("timestamps") in ("true", "1")
    follows = query.get("follow") in ("true", "1")
    since_s = _since(query)
    lines = log.lines(0)
    count = len(lines)
    shown = [line for line in lines if line[0] >= since_s]
    if query.get("tailLines"):
        tail = int(query["tailLines"])
        shown = shown[-tail:] if tail else []
    while True:
        for at_s, text in shown:
            whole = _stamp(at_s) + text if has_times else text
            part = whole if left is None else whole[:left]
            left = None if left is None else left - len(part)
            if part:
                yield part
        if not follows or left == 0:
            return
        is_last = log.is_ended()  # asked first: what was written before the end is not missed
        shown = list(log.lines(count))
        count += len(shown)
        if is_last and not shown:
            return
        if not shown:
            await asyncio.sleep(_POLL_S)


def _since(query: Any) -> float:
    if query.get("sinceSeconds"):
        return time.time() - int(query["sinceSeconds"])
    if query.get("sinceTime"):
        return datetime.fromisoformat(query["sinceTime"].replace("Z", "+00:00")).timestamp()
    return 0.0


def _stamp(at_s: float) -> bytes:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode()

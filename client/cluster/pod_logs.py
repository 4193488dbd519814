"""The logs of a job's pods: what they have printed, and what they go on to print, new pods too.

Of pods that are gone the master has kept the last lines (`edlz.k8s.pods.log_keeper`).
"""

import asyncio
import heapq
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from edlz.client.cluster.index import Place
from edlz.client.cluster.job_view import ClusterJobView
from edlz.client.cluster.queries import look_at_job
from edlz.client.screen.log_choice import LogChoice, LogOutput, NoSuchService, refuse_missing
from edlz.client.screen.log_lines import LogLine, stamped
from edlz.k8s.cluster.api_errors import ApiError, NotFound, Refused
from edlz.k8s.cluster.names import MASTER, pod_name
from edlz.k8s.cluster.rights import MANIFEST, with_own_path
from edlz.k8s.pods.pod_log import PodLog, logs_selector, read_config_map
from edlz.services.configuration.problems import Problem, print_problems
from edlz.services.errors import EdlzError, PeerUnavailable

if TYPE_CHECKING:
    from edlz.k8s.cluster.api import Cluster

__all__ = ["print_pod_logs"]

POLL_S = 1.0
LULL_S, HISTORY_S = 0.3, 5.0  # without a line: the lines that were there have come; but not for ever
OVERLAP_S = 5.0  # that a broken stream is opened again before its last line
LAST_S = 5.0  # for the last lines after the job's end
_WAITING = 1000  # lines of a pod that wait to be printed


async def print_pod_logs(cluster: "Cluster", at: Place, choice: LogChoice, output: LogOutput) -> None:
    """Print the lines that are wanted, in the order of time; then those to come, if they are followed.

    Raises
    ------
    NoSuchService
        If the job has no such pod.
    """
    view = await look_at_job(cluster, at)
    choice = choice.by_clock(cluster.clock.ahead_s)
    known = await _kept_logs(cluster, at, view)
    kept = [log for log in known if choice.takes(log.name)]
    names = list(dict.fromkeys([*(pod.name for pod in view.pods), *(log.name for log in known)]))
    if choice.is_following and view.is_live:
        await _Following(cluster, at, choice, output).run(view, kept)
        return
    if names and not view.is_live and not set(choice.sources) <= set(names):
        raise NoSuchService(
            _gone(at.word, choice.sources, names), f"edlz logs {at.word}; edlz status {at.word}"
        )
    refuse_missing(at.word, choice.sources, names)
    if not view.is_live and not choice.sources and names == [MASTER]:
        print(_gone(at.word, (), names), file=sys.stderr)
    wanted = [pod for pod in view.pods if choice.takes(pod.name)]
    async with asyncio.TaskGroup() as tasks:
        reading = [
            tasks.create_task(_whole(cluster, at, pod.name, with_previous=bool(pod.restarts)), name=pod.name)
            for pod in wanted
        ]
    found = [*map(_lines_of, kept), *(task.result() for task in reading)]
    lines = heapq.merge(*map(choice.selection.take, found), key=lambda line: line.at)
    output.write(lines if choice.tail is None else deque(lines, maxlen=choice.tail))


def _gone(word: str, sources: Sequence[str], names: Sequence[str]) -> str:
    """Say where logs are that are wanted of a job that has ended."""
    missing = [source for source in sources if source not in names]
    if missing:
        return (
            f'job "{word}" has ended, and the log of {missing[0]} went with its pod; kept: {", ".join(names)}'
        )
    return (
        f"{word}: logs of parameter servers and workers went with their pods; "
        f"{with_own_path(MANIFEST)} lets the master keep their last lines, --log_file_path keeps all"
    )


async def _kept_logs(cluster: "Cluster", at: Place, view: ClusterJobView) -> list[PodLog]:
    """Return the logs of pods that are gone, in the order in which they began; none if they may not be seen."""
    there = [pod.uid for pod in view.pods]
    try:
        found = await cluster.list_objects("ConfigMap", logs_selector(at.name))
    except EdlzError as e:
        if view.pods:
            problem = Problem(f"logs of pods that are gone cannot be seen: {e.message}", e.help)
            print_problems([problem], "warning")
        return []
    logs = [log for one in found if (log := read_config_map(one))]
    gone = [log for log in logs if not log.uid or not any(uid.startswith(log.uid) for uid in there)]
    return sorted(gone, key=lambda log: log.text)  # it begins with a time


def _lines_of(log: PodLog) -> list[LogLine]:
    return [_line(log.name, text) for text in log.lines()]


async def _whole(cluster: "Cluster", at: Place, name: str, *, with_previous: bool) -> list[LogLine]:
    """Return all lines of a pod, with those of its container's life before; nothing if it has none yet."""
    lines: list[LogLine] = []
    for is_previous in (True, False) if with_previous else (False,):
        try:
            printed = cluster.pod_log(pod_name(at.name, name), previous=is_previous, timestamps=True)
            lines += [_line(name, text) async for text in printed]
        except (NotFound, Refused):
            pass  # the pod is gone, or its container has not begun
        except EdlzError as e:
            print_problems([Problem(f"the log of {name} cannot be read: {e.message}", e.help)], "warning")
    return lines


class _Following:
    """Follows the pods of a job until it ends.

    A stream that breaks is opened again; the lines that were seen are known by their times.
    """

    def __init__(self, cluster: "Cluster", at: Place, choice: LogChoice, output: LogOutput) -> None:
        self._cluster, self._at = cluster, at
        self._choice, self._output = choice, output
        self._lines: asyncio.Queue[LogLine] = asyncio.Queue(_WAITING)
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._has_ended = False

    async def run(self, view: ClusterJobView, kept: Sequence[PodLog]) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._join(view, tasks)
            watching = tasks.create_task(self._watch(tasks), name="watch pods")
            await self._print_history([line for log in kept for line in _lines_of(log)])
            while not self._is_over():
                with suppress(TimeoutError):
                    async with asyncio.timeout(LULL_S):
                        self._write([await self._lines.get()])
            watching.cancel()
            for stream in self._streams.values():
                stream.cancel()

    def _join(self, view: ClusterJobView, tasks: asyncio.TaskGroup) -> None:
        """Follow the pods that are new."""
        for pod in view.pods:
            if pod.name not in self._streams and self._choice.takes(pod.name):
                self._streams[pod.name] = tasks.create_task(self._read(pod.name), name=f"log of {pod.name}")

    async def _watch(self, tasks: asyncio.TaskGroup) -> None:
        """Look for new pods until the job has ended."""
        while not self._has_ended:
            await asyncio.sleep(POLL_S)
            with suppress(EdlzError):  # it may answer again
                view = await look_at_job(self._cluster, self._at)
                self._join(view, tasks)
                self._has_ended = not view.is_live
        if self._streams:
            await asyncio.wait(self._streams.values(), timeout=LAST_S)
        for stream in self._streams.values():
            stream.cancel()

    async def _read(self, name: str) -> None:
        """Pass the lines of a pod on, until it is gone or has ended."""
        last, last_s = "", 0.0
        pod = pod_name(self._at.name, name)
        while True:
            began = time.monotonic()
            since_s = began - last_s + OVERLAP_S if last else None
            try:
                printed = self._cluster.pod_log(pod, follow=True, timestamps=True, since_s=since_s)
                async for text in printed:
                    stamp = text.partition(" ")[0]
                    if stamp > last:
                        last, last_s = stamp, time.monotonic()
                        await self._lines.put(_line(name, text))
            except NotFound:
                return
            except (ApiError, PeerUnavailable):
                pass  # it has not begun, or the stream broke
            if self._has_ended:
                return
            await asyncio.sleep(max(0.0, POLL_S - (time.monotonic() - began)))

    async def _print_history(self, found: list[LogLine]) -> None:
        """Print what was there before, in the order of time, and no more of it than was asked for."""
        end = time.monotonic() + HISTORY_S
        with suppress(TimeoutError):
            while time.monotonic() < end:
                async with asyncio.timeout(LULL_S):
                    found.append(await self._lines.get())
        found.sort(key=lambda line: line.at)
        lines = self._choice.selection.take(found)
        tail = self._choice.tail
        self._output.write(lines if tail is None else deque(lines, maxlen=tail))

    def _write(self, lines: Iterable[LogLine]) -> None:
        self._output.write(self._choice.selection.take(lines))

    def _is_over(self) -> bool:
        return (
            self._has_ended
            and self._lines.empty()
            and all(stream.done() for stream in self._streams.values())
        )


def _line(source: str, text: str) -> LogLine:
    """Return a line whose text begins with the time at which the node took it."""
    stamp, _, rest = text.partition(" ")
    try:
        at = datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        at, rest = 0.0, text
    (line,) = stamped(source, [rest])
    return line._replace(at=at)

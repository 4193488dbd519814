"""A job on a cluster, and what can be done with it: through annotations of its master pod, and its pods' logs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edlz.client.cluster.connection import asked, connected
from edlz.client.cluster.following import follow_job, refuse_running
from edlz.client.cluster.index import Place, forget_place, no_job_there
from edlz.client.cluster.pod_logs import print_pod_logs
from edlz.client.cluster.queries import look_at_clusters, look_at_job, refuse_missing_namespace
from edlz.client.cluster.removal import delete_master, delete_pods
from edlz.client.job_files.settings_text import asked_workers_in, settings_in
from edlz.client.screen.job_view import not_running
from edlz.client.screen.log_choice import LogChoice, LogOutput
from edlz.k8s.cluster.names import CONFIG, MASTER, STOP, WORKERS, pod_name
from edlz.k8s.cluster.package import require_kubernetes
from edlz.k8s.cluster.port_forward import forward
from edlz.services.configuration.job_size import check_workers, scale_warning
from edlz.services.errors import ConfigError
from edlz.services.protocol.messages import Scaled

if TYPE_CHECKING:
    from edlz.client.cluster.job_view import ClusterJobView
    from edlz.client.screen.screens import Screen
    from edlz.k8s.cluster.api import Cluster

__all__ = ["ClusterJob", "running_jobs"]

POLL_S = 1.0
WAIT_S = 60.0  # that a cluster may be silent while a job is waited for


class ClusterJob:
    """A job on a cluster.

    Parameters
    ----------
    place : Place
        Where it is.
    """

    def __init__(self, place: Place) -> None:
        self._at = place
        self._master = pod_name(place.name, MASTER)
        self._was_seen = place.is_from_here  # so it is known that there is, or was, such a job

    @property
    def name(self) -> str:
        return self._at.name

    @property
    def word(self) -> str:
        return self._at.word

    @property
    def where(self) -> str:
        return f"k8s/{self._at.namespace}"

    def view(self) -> "ClusterJobView":
        """Return how it fares.

        Raises
        ------
        NoSuchJob
            If there is nothing of it, neither here nor there.
        """
        return asked(self._at, self._look)

    def watch(self, screen: "Screen") -> None:
        """Pass what is seen of it on to a screen, until it has ended."""
        asyncio.run(follow_job(self._at, screen))

    def asked_workers(self) -> int:
        """Return --num_workers, if it was submitted from here; the status says it too."""
        return asked_workers_in(settings_in(self._at.settings))

    def print_logs(self, choice: LogChoice, output: LogOutput) -> None:
        """Print lines of its pods, until its end if they are followed."""
        asked(self._at, lambda cluster: print_pod_logs(cluster, self._at, choice, output))

    def scale(self, workers: int) -> Scaled:
        """Ask its master for another number of workers."""

        async def patch(cluster: "Cluster") -> Scaled:
            view = await self._look(cluster)
            _refuse_idle(view)
            master = await cluster.get_pod(self._master)
            settings = settings_in(master.annotations.get(CONFIG, ""))
            least, most = settings.get("min_workers"), settings.get("max_workers")
            check_workers(workers, *(bound if isinstance(bound, int) else 0 for bound in (least, most)))
            await cluster.patch_annotations(self._master, {WORKERS: str(workers)})
            before = view.asked_workers or view.status.target_workers
            warning = scale_warning(workers, view.status.slots) if view.status.mode == "sync" else ""
            return Scaled(before=before, after=workers, warning=warning)

        return asked(self._at, patch)

    def refuse_idle(self, *, is_now: bool = False) -> None:
        """Raise ConfigError unless it runs, or something of it is left that can be ended now."""
        view = self.view()
        if not (is_now and view.has_lost_pods):
            _refuse_idle(view)

    def begin_stop(self) -> list[str]:
        """Tell its master to save and stop, or delete it if it would not hear of it; return what there is to say."""

        async def tell(cluster: "Cluster") -> list[str]:
            view = await self._look(cluster)
            if view.is_deaf:
                return await delete_pods(cluster, self._at.name)
            await cluster.patch_annotations(self._master, {STOP: "save"})
            return []

        return asked(self._at, tell)

    def end_now(self) -> list[str]:
        """Delete its master, and with it all that it owns, if it runs; return what there is to say, when it is gone."""

        async def end(cluster: "Cluster") -> list[str]:
            view = await self._look(cluster)
            return await delete_pods(cluster, self._at.name) if view.is_live or view.has_lost_pods else []

        said = asked(self._at, end)
        self.wait()
        return said

    def open_page(self, show: Callable[[str], None]) -> None:
        """Forward the port of its status page to this machine, and show where, until it has ended.

        Raises
        ------
        ConfigError
            If it does not run.
        """

        async def run(cluster: "Cluster") -> None:
            port = self._page_port(await self._look(cluster))
            async with await forward(cluster, self._master, port) as server:
                show(f"http://localhost:{server.sockets[0].getsockname()[1]}")
                while True:
                    await asyncio.sleep(POLL_S)
                    if not (await self._look(cluster)).is_live:
                        return

        asked(self._at, run)

    def wait(self, limit_s: float | None = None) -> bool:
        """Return whether it has ended, when it has, or `limit_s` seconds are over."""

        async def run() -> bool:
            try:
                async with asyncio.timeout(limit_s), connected(self._at, WAIT_S) as cluster:
                    while True:
                        if not (await self._look(cluster)).is_live:
                            return True
                        await asyncio.sleep(POLL_S)
            except TimeoutError:
                return False

        return asyncio.run(run())

    def resume(self, argv: Sequence[str]) -> int:
        """Go on with it in new pods, if its files lie on a volume; return the exit code of the command."""
        require_kubernetes()
        # Not above: it makes pods, and the package for that takes most of a second to import.
        from edlz.client.cluster.resumption import resume_on_cluster

        return resume_on_cluster(self._at, argv)

    def remove(self) -> list[str]:
        """Remove its pods and forget it; return what there is to say.

        Raises
        ------
        ConfigError
            If it runs.
        """

        async def delete(cluster: "Cluster") -> tuple[bool, list[str]]:
            view = await self._look(cluster)
            refuse_running(view, "rm")
            said = await delete_pods(cluster, self._at.name) if view.has_lost_pods else []
            return await delete_master(cluster, self._at.name) or bool(said), said

        was_there, said = asked(self._at, delete)
        forget_place(self._at)
        pods = (
            "its pods, services and keys are deleted" if was_there else "there was nothing left of its pods"
        )
        lines = [*said, f"{self.word} is removed: {pods}"]
        if self._at.job_dir:
            lines.append(f"its files stay on the volume, in {self._at.job_dir}")
        return lines

    def _page_port(self, view: "ClusterJobView") -> int:
        """Return the port of the status page in the master's pod; errors as of `open_page`."""
        status = f"edlz status {self.word}"
        if not view.is_live:
            kept = f"its report is {view.report}" if view.report else "its report went with its pod"
            raise ConfigError(f'job "{self.word}" is not running; {kept}', status)
        port = view.status.page.rpartition(":")[2]
        if not port.isdecimal():
            why = "it has just begun, or has --status_port=none"
            raise ConfigError(f'job "{self.word}" has no status page now: {why}', status)
        return int(port)

    async def _look(self, cluster: "Cluster") -> "ClusterJobView":
        view = await look_at_job(cluster, self._at)
        self._was_seen |= bool(view.pods)
        if not self._was_seen:
            await refuse_missing_namespace(cluster)
            raise no_job_there(self._at)
        return view


def running_jobs(namespace: str = "") -> list[ClusterJob]:
    """Return the jobs that run in a namespace, or among those that were submitted from here."""
    return [ClusterJob(view.at) for view in look_at_clusters(namespace) if view.is_live]


def _refuse_idle(view: "ClusterJobView") -> None:
    if not view.is_live:
        raise not_running(view)

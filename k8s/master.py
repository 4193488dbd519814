"""`python -m edlz.k8s.master`: the master pod's process, which serves the job and runs its pods.

Its container restarts in place: then it finds the pods that it has made, and the journal says how far the job
is.  Whatever it makes, its pod owns.
"""

import asyncio
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import told
from edlz.k8s.cluster.master_trouble import check_rights
from edlz.k8s.cluster.names import MASTER, MASTER_PORT, Owner, pod_name
from edlz.k8s.container_end import read_mark, with_last_word, write_mark
from edlz.k8s.job_folders import check_folders
from edlz.k8s.job_keys import hand_on_keys, with_keys
from edlz.k8s.pods.log_folder import LogFolder
from edlz.k8s.pods.log_keeper import LogKeeper
from edlz.k8s.pods.pod_supervisor import PodSupervisor
from edlz.k8s.pods.status_note import failed_status, note_of_status, write_note
from edlz.services.configuration.arguments import parse_arguments
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, EdlzError
from edlz.services.master.service import MasterService, serve_master
from edlz.services.process.logs import configure_logging
from edlz.services.process.outputs import guard_outputs
from edlz.services.process.runtime import Stop, run_service
from edlz.services.protocol.job_status import JobStatus
from edlz.services.supervision.backoff import Pauses
from edlz.services.transport.keys import JobKeys

__all__ = ["OwnPod", "own_pod", "run_master"]

SAVE_S = 20.0  # for a checkpoint, when the pod is to go: of the 30 s that Kubernetes gives
LAST_WORD_S, HASTY_WORD_S = 20.0, 3.0  # for the last status to be taken; when the pod is to go
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
DEADLINE_S = 15.0  # for the kubelet to end this pod

logger = logging.getLogger(__name__)


def main() -> int:
    guard_outputs()
    config = parse_arguments(sys.argv[1:], "master")
    configure_logging(config.log_level, config.log_format, role=MASTER, job=config.job_name)
    return run_service(lambda stop: with_last_word(run_master(config, own_pod(config, os.environ), stop)))


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The pod that this process runs in."""

    name: str
    uid: str
    ip: str

    @property
    def address(self) -> str:
        """HOST:PORT of the master, as other pods reach it."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{host}:{MASTER_PORT}"


def own_pod(config: JobConfig, environ: Mapping[str, str]) -> OwnPod:
    """Return the pod that this process runs in, from the variables that its pod gives it.

    Raises
    ------
    ConfigError
        If one is missing.
    """
    missing = [name for name in ("MY_POD_UID", "MY_POD_IP") if not environ.get(name)]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)} not set: this is the process of a master pod",
            "submit the job: edlz train --image_name=…; a master by hand: python -m edlz.services.master",
        )
    name = environ.get("MY_POD_NAME") or pod_name(config.job_name, MASTER)
    return OwnPod(name, environ["MY_POD_UID"], environ["MY_POD_IP"])


async def run_master(config: JobConfig, pod: OwnPod, stop: Stop) -> int:
    """Run a job to its end, its pods with it; return the job's exit code.

    Raises
    ------
    ConfigError, NotPermitted
        If nothing could be said on the pod: its container is started again, and its end says why.
    """
    if not config.endpoint and not config.host:
        config = dataclasses.replace(config, endpoint=f"tcp://{pod.address}")
    config = dataclasses.replace(config, launch_id=pod.uid)
    async with await Cluster.connect(config) as cluster:
        own = _Own(cluster, pod, config.restart_policy, stop)
        folder = config.job_directory
        ended = read_mark(folder, pod.uid)
        if ended is None:
            await check_rights(cluster)
        try:
            check_folders(config)
            config, keys = with_keys(config)
            job = _JobRun(config, keys, own)
            if ended is None:
                ended = await job.serve()
                if stop.is_set and ended[1].state not in ("Succeeded", "Failed"):
                    await own.write(
                        ended[1], HASTY_WORD_S
                    )  # what was made goes with the pod, or is found again
                    return stop.code
                write_mark(folder, pod.uid, *ended)
            await own.write(ended[1], LAST_WORD_S)
            await job.delete_all()
        except EdlzError as error:
            logger.error("the job cannot run: %s", told(error))
            ended = (error.exit_code, failed_status(config, error))
            await own.write(ended[1], LAST_WORD_S)
        return await own.leave(ended[0])


class _Own:
    """The master pod, as its process treats it."""

    def __init__(self, cluster: Cluster, pod: OwnPod, restart_policy: str, stop: Stop) -> None:
        self.cluster, self.pod, self.stop, self._restart_policy = cluster, pod, stop, restart_policy
        self.owner = Owner(pod.name, pod.uid)

    async def write(self, status: JobStatus, patience_s: float) -> None:
        """Write how the job ended."""
        try:
            await write_note(self.cluster, self.owner, note_of_status(status), patience_s=patience_s)
        except EdlzError as error:
            logger.warning("the job's last status could not be written on its pod: %s", told(error))

    async def leave(self, code: int) -> int:
        """Wait until the container may end without being started again, as far as that can be had."""
        if self._restart_policy == "Always":
            await self.stop.wait()
        elif self._restart_policy == "OnFailure" and code:
            try:
                await self.cluster.end_pod(self.pod.name, uid=self.pod.uid)
                async with asyncio.timeout(DEADLINE_S):
                    await self.stop.wait()
            except TimeoutError:
                logger.warning("the pod was not ended within %.0fs: its container starts again", DEADLINE_S)
            except EdlzError as error:
                logger.warning("the pod's container starts again: %s", told(error))
        return code


class _JobRun:
    """One life of a master pod's process."""

    def __init__(self, config: JobConfig, keys: JobKeys | None, own: _Own) -> None:
        self._config, self._keys, self._own = config, keys, own
        # Not above: the package for pods takes most of a second to import, and where it is missing the master says so.
        from edlz.k8s.objects.job_objects import job_objects

        self._objects = job_objects(config, own.owner, own.pod.address)
        logs = LogKeeper(own.cluster, self._objects, LogFolder(config.job_directory / "pods"))
        self._loop = PodSupervisor(own.cluster, self._objects, time.time_ns() // 1_000, logs)
        self._service: MasterService | None = None
        self._serving = Stop()  # the master service's own: a signal is first a wish to save

    async def serve(self) -> tuple[int, JobStatus]:
        """Serve the job to its end; return its exit code and its last status.

        Raises
        ------
        EdlzError
            If it cannot begin.
        """
        code, error = 0, None
        async with asyncio.TaskGroup() as tasks:
            obeying = tasks.create_task(self._obey_signal(), name="obey a signal")
            try:
                holder = f"{self._own.cluster.namespace}/{self._own.pod.name}"
                code = await serve_master(self._config, self._serving, self._attend, holder=holder)
            except EdlzError as raised:  # kept: a group would wrap it
                error = raised
            obeying.cancel()
        if error is not None:
            raise error
        assert self._service is not None, "a job that was served has a service"
        return code, self._service.status()

    async def delete_all(self) -> None:
        """Delete what was made for the job."""
        await self._loop.end(self._config.num_ps_pods)

    async def _attend(self, service: MasterService) -> None:
        self._service = service
        if self._keys is not None:
            await self._hand_on(self._keys, service)
        await self._loop.attend(service)

    async def _hand_on(self, keys: JobKeys, service: MasterService) -> None:
        """Put the keys into the job's secret, as soon as the cluster takes it."""
        pauses, last = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S), ""
        while True:
            try:
                await hand_on_keys(self._own.cluster, self._objects, keys, Path(self._config.keys_dir))
                return
            except EdlzError as error:
                if error.message != last:
                    last = error.message
                    service.announce("job", f"no pod can be started yet: {told(error)}")
            await asyncio.sleep(pauses.take())

    async def _obey_signal(self) -> None:
        """Let the job save a checkpoint when the pod is to go; end in time even if it cannot."""
        await self._own.stop.wait()
        logger.info("%s: the job saves a checkpoint and ends", self._own.stop.reason)
        self._loop.is_stopping = True
        await asyncio.sleep(SAVE_S)
        self._serving.set(self._own.stop.code, self._own.stop.reason)


if __name__ == "__main__":
    sys.exit(main())

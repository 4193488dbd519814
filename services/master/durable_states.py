"""The states of a job that outlive its processes, as its master completes them: checkpoints, and what a group goes on from."""

import asyncio
import dataclasses
import logging
from pathlib import Path

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import DataError
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.instructions import WriteManifest, WriteState
from edlz.services.protocol.messages import Ends
from edlz.services.storage.checkpoint_records import version_of
from edlz.services.storage.checkpoint_writing import Finished, write_manifest
from edlz.services.storage.pruning import prune, remove_unfinished, remove_version
from edlz.services.storage.replica_files import ReplicaFiles

__all__ = ["CheckpointFolder", "GroupStates"]

logger = logging.getLogger(__name__)


class CheckpointFolder:
    """The checkpoints of one job; what goes wrong with one of them costs that one alone.

    Parameters
    ----------
    config : JobConfig
    core : MasterCore
        Read, never changed.
    """

    def __init__(self, config: JobConfig, core: MasterCore) -> None:
        self._config, self._core, self._folder = config, core, config.checkpoint_directory

    async def complete(self, order: WriteManifest, minibatches: int) -> str:
        """Make a checkpoint valid, and let go of those that are not kept; return why that failed, or nothing."""
        core = self._core
        finished = dataclasses.replace(
            _finished(core, order.number, minibatches, order.ends),
            epoch=core.plan.epoch_by(len(core.work.queue.done)),
            run_number=core.job.run_number,
            settings=self._config.model_settings(),
        )
        try:
            await asyncio.to_thread(self._complete, order, finished)
        except (OSError, DataError) as error:
            return str(error)
        return ""

    def _complete(self, order: WriteManifest, finished: Finished) -> None:
        write_manifest(self._folder, order.version, order.parts, finished, tag=_tag_of(self._core))
        needed = (*order.needed, *self._begun_from())
        try:
            prune(self._folder, self._config.keep_checkpoint_max, needed=needed, finished=order.version)
        except OSError as error:
            logger.warning("old checkpoints in %s could not be removed: %s", self._folder, error)

    async def drop_parts(self, version: int) -> None:
        """Remove what was written of a checkpoint that will not be complete."""
        try:
            await asyncio.to_thread(remove_unfinished, self._folder, version)
        except OSError as error:
            logger.warning("parts of version %d in %s could not be removed: %s", version, self._folder, error)

    async def drop(self, version: int) -> None:
        """Remove a complete checkpoint, unless the run began from it."""
        if version in self._begun_from():
            return
        try:
            await asyncio.to_thread(remove_version, self._folder, version, self._core.job.name)
        except OSError as error:
            logger.warning("version %d in %s could not be removed: %s", version, self._folder, error)

    def _begun_from(self) -> tuple[int, ...]:
        """Return the version that the run began from, if it lies in the folder of its own checkpoints."""
        begins_from = self._core.job.begins_from
        if not begins_from:
            return ()
        version, place = version_of(Path(begins_from)), Path(begins_from).parent
        is_here = place.resolve() == self._folder.resolve()
        return (version,) if version is not None and is_here else ()


class GroupStates:
    """The durable states of one job's group; what goes wrong with one of them costs that one alone.

    Parameters
    ----------
    files : ReplicaFiles
    core : MasterCore
        Read, never changed.
    """

    def __init__(self, files: ReplicaFiles, core: MasterCore) -> None:
        self._files, self._core = files, core
        self._turn = asyncio.Lock()

    async def complete(self, order: WriteState, minibatches: int) -> str:
        """Say of a state that all members have written their parts of it; return why that failed, or nothing.

        One after another: what one leaves half written is a leftover to the next, which may be the same state in other parts.
        """
        core, (_, version) = self._core, order.name
        finished = _finished(core, order.number, minibatches, core.work.bad_tasks.journalled)
        about = version, order.parts, finished, _tag_of(core)
        try:
            async with self._turn:
                await asyncio.to_thread(self._files.complete, *about)
        except (OSError, DataError) as error:
            return str(error)
        return ""


def _finished(core: MasterCore, number: int, minibatches: int, ends: Ends) -> Finished:
    """Return what the master says of a state that all have written; a checkpoint tells more."""
    return Finished(
        job=core.job.name,
        run=core.job.run,
        mode=core.plan.mode,
        number=number,
        epoch=0,
        minibatches=minibatches,
        ends=ends,
    )


def _tag_of(core: MasterCore) -> str:
    return f"master-{core.term}"

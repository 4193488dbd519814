"""The files of an all-reduce job's states: each member writes its slices of them as a partition's part.

Both places hold versions as a folder of checkpoints does (`checkpoint_records`): a part for each member and a manifest, which the
master writes.  `checkpoints` is the job's own; `replicas` has what a job goes on from when all members are lost, and the state
that it ends with.  A state is named by the generation of its last step, and its version: so are its parts, by their `era`.
"""

import logging
import os
from pathlib import Path

import msgspec

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import ConfigError, DataError
from edlz.services.protocol.groups import DurableState, number_of
from edlz.services.protocol.messages import Job, PartInfo, SnapshotName
from edlz.services.storage.checkpoint_reading import read_partition
from edlz.services.storage.checkpoint_records import Manifest, read_manifest, version_folder
from edlz.services.storage.checkpoint_writing import Finished, write_manifest, write_part
from edlz.services.storage.durable import make_folder
from edlz.services.storage.pruning import prune
from edlz.services.storage.sealed import replicas_folder
from edlz.services.storage.state import State
from edlz.services.storage.versions import list_versions

__all__ = ["ReplicaFiles"]

KEPT = 2  # versions to go on from, if one cannot be read
MARK = ".master"  # of the folder of states to go on from: members that find it see the master's own

logger = logging.getLogger(__name__)


class ReplicaFiles:
    """What the members of one job write and read.

    Parameters
    ----------
    job : Job
    """

    def __init__(self, job: Job) -> None:
        config = JobConfig.from_record(job.config)
        self._job, self._checkpoints = job, config.checkpoint_directory
        self._replicas = replicas_folder(config.job_directory, job.run)

    def mark(self) -> None:
        """As the master, before any member is told of the job: let them see whether they have the same folder.

        Raises
        ------
        ConfigError
            If nothing can be written there.
        """
        place = self._replicas / MARK
        try:
            if not place.exists():  # else an earlier master has left it
                make_folder(self._replicas)
                place.touch()
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"cannot use {self._replicas}: {reason}", "set --job_dir elsewhere") from error

    @property
    def are_marked(self) -> bool:
        """Whether the master's mark is to be seen here: a member may have made such a folder of its own."""
        return os.path.exists(self._replicas / MARK)  # Path.exists raises where rights are missing

    def write(self, state: State, tag: str, *, is_checkpoint: bool) -> PartInfo | None:
        """Make a member's part durable; None if another version has its place.

        Raises
        ------
        OSError
            If the disk is full or fails; nothing new is left.
        """
        about = {"number": number_of(state.era), "run": self._job.run, "tag": tag}
        return write_part(self.place(is_checkpoint), state, version=state.version, **about)  # type: ignore[arg-type]

    def load(self, name: SnapshotName) -> State:
        """Read a whole state.

        Raises
        ------
        DataError, OSError
            If there is none of that name that is whole.
        """
        generation, version = name
        for place in (self._replicas, self._checkpoints):
            folder = version_folder(place, version)
            try:
                # Else it lies in the other place.
                if folder.is_dir() and self._name_of(read_manifest(folder)) == name:
                    return msgspec.structs.replace(read_partition(folder, 0, 1), era=generation)
            except (DataError, OSError) as error:
                logger.warning("%s cannot be read: %s", folder, error)
        raise DataError(f"no state of v{version} of generation {generation} can be read")

    def names(self) -> frozenset[DurableState]:
        """Return the names of all states that are there, as far as a quick look shows, and whether as checkpoints."""
        found = set[DurableState]()
        for place in (self._replicas, self._checkpoints):
            try:
                versions = list_versions(place)
            except OSError as error:
                logger.warning("%s cannot be read: %s", place, error)
                continue
            for info in versions:
                name = self._name_of(info.manifest) if info.is_good and info.manifest is not None else None
                if name is not None:
                    found.add((name, place == self._checkpoints))
        return frozenset(found)

    def complete(self, version: int, parts: tuple[PartInfo, ...], finished: Finished, tag: str) -> None:
        """Make a version valid from which the job can go on, and let go of older ones.

        Raises
        ------
        DataError, OSError
            If its parts are not as reported, or the disk fails.
        """
        write_manifest(self._replicas, version, parts, finished, tag=tag)
        try:
            prune(self._replicas, KEPT, needed=(version,), finished=version)
        except OSError as error:
            logger.warning("old states in %s could not be removed: %s", self._replicas, error)

    def place(self, is_checkpoint: bool) -> Path:
        """Return the folder of checkpoints, or that of states to go on from."""
        return self._checkpoints if is_checkpoint else self._replicas

    def _name_of(self, manifest: Manifest) -> SnapshotName | None:
        """Return the name of a state of this run and plan; None of any other."""
        eras = {part.era for part in manifest.parts}
        is_ours = (manifest.run, manifest.plan_hash) == (self._job.run, self._job.plan.hash)
        return (eras.pop(), manifest.version) if is_ours and len(eras) == 1 else None

"""The states that an all-reduce job goes on from when all its members are lost, as its master completes them."""

import asyncio

from edlz.services.errors import DataError
from edlz.services.master.core.master import MasterCore
from edlz.services.master.core.vocabulary.instructions import WriteState
from edlz.services.storage.checkpoint_writing import Finished
from edlz.services.storage.replica_files import ReplicaFiles

__all__ = ["GroupStates"]


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

    async def complete(self, order: WriteState, minibatches: int) -> str:
        """Say of a state that all members have written their parts of it; return why that failed, or nothing."""
        core, (_, version) = self._core, order.name
        finished = Finished(
            job=core.job.name,
            run=core.job.run,
            mode=core.plan.mode,
            number=order.number,
            epoch=0,
            minibatches=minibatches,
            ends=core.work.bad_tasks.journalled,
        )
        tag = f"master-{core.term}"
        try:
            await asyncio.to_thread(self._files.complete, version, order.parts, finished, tag)
        except (OSError, DataError) as error:
            return str(error)
        return ""

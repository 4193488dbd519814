"""A parameter server's last state that does not fit on its disk."""

import asyncio
import errno
from pathlib import Path

from states import make_state

from edlz.services.messages import Job
from edlz.services.plan import Plan
from edlz.services.ps.instructions import Write
from edlz.services.ps.service import PartitionService
from edlz.services.rpc import RpcClient, RpcServer
from edlz.services.runtime import Stop

PLAN = Plan(mode="sync", seed=0, shards=(), records_per_task=1, minibatch_size=1, epochs=1, slots=1)
JOB = Job(name="j", run="r", config={}, plan=PLAN, partitions=1)


def test_a_full_disk_is_forgotten_with_the_state_that_did_not_fit(tmp_path: Path) -> None:
    """The job goes back before the last try, and what it wrote is thrown away; the next seal has all the time again."""

    async def run() -> None:
        endpoint = f"ipc://{tmp_path}/ps"
        server = RpcServer(endpoint, lambda to, body: None, role="ps", job="j", linger_s=0.0)
        line = RpcClient(endpoint, role="ps", identity="0")
        service = PartitionService(0, endpoint, server, line, tmp_path, Stop())
        service._core.job = JOB
        service._snapshots.open(JOB)
        seal = Write("seal", make_state(era=(1, 2)))
        service._core.era = (1, 2)
        service._on_write_error(seal, OSError(errno.ENOSPC, "No space left on device"))
        assert service._full_since is not None

        service._core.era = (1, 3)
        prepared: asyncio.Future[tuple[Path, Path]] = asyncio.get_running_loop().create_future()
        prepared.set_result((tmp_path / "body", tmp_path / "head"))
        service._publish(seal, prepared)
        assert service._full_since is None
        service.close()
        line.close()
        server.close()

    asyncio.run(run())

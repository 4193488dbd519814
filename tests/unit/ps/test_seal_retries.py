"""A parameter server's last state that does not fit on its disk."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

from edlz.services.process.runtime import Stop
from edlz.services.ps.core.instructions import Write
from edlz.services.ps.service import FULL_S, PartitionService
from edlz.services.transport.rpc import RpcClient, RpcServer
from tests import builders
from tests.states import make_state

PLAN = builders.plan()
JOB = builders.job(PLAN)
FULL = OSError(errno.ENOSPC, "No space left on device")


def with_service(folder: Path, check: Callable[[PartitionService], None]) -> None:
    """Check a partition's service that serves in era (1, 2)."""

    async def run() -> None:
        endpoint = f"ipc://{folder}/ps"
        server = RpcServer(endpoint, lambda to, body: None, role="ps", job="j", linger_s=0.0)
        line = RpcClient(endpoint, role="ps", identity="0")
        service = PartitionService(0, endpoint, server, line, folder, Stop())
        service._core.job, service._core.era = JOB, (1, 2)
        service._snapshots.open(JOB)
        try:
            check(service)
        finally:
            service.close()
            line.close()
            server.close()

    asyncio.run(run())


def seal(era: tuple[int, int]) -> Write:
    return Write("seal", make_state(era=era))


def test_a_full_disk_is_forgotten_with_the_state_that_did_not_fit(tmp_path: Path) -> None:
    """The job goes back before the last try, and what it wrote is thrown away; the next seal has all the time again."""

    def check(service: PartitionService) -> None:
        service._on_write_error(seal((1, 2)), FULL)
        assert service._full_since is not None
        service._core.era = (1, 3)
        prepared: asyncio.Future[tuple[Path, Path]] = asyncio.get_running_loop().create_future()
        prepared.set_result((tmp_path / "body", tmp_path / "head"))
        service._publish(seal((1, 2)), prepared)
        assert service._full_since is None

    with_service(tmp_path, check)


def test_a_seal_of_another_era_has_all_the_time_again(tmp_path: Path) -> None:
    """Nothing was written in between that would say that there is room."""

    def check(service: PartitionService) -> None:
        now = asyncio.get_running_loop().time()
        service._full_since = (1, 2), now - FULL_S - 1.0
        service._core.era = (1, 3)
        service._on_write_error(seal((1, 3)), FULL)
        assert service._error is None
        service._full_since = (1, 3), now - FULL_S - 1.0
        service._on_write_error(seal((1, 3)), FULL)
        assert service._error is not None

    with_service(tmp_path, check)

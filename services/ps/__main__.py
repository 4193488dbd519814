"""`python -m edlz.services.ps`: one parameter server, by hand or started by a launcher."""

import asyncio
import sys
from pathlib import Path

from edlz.services.configuration.arguments import parse_arguments
from edlz.services.configuration.job_config import JobConfig
from edlz.services.process.contact import Contact
from edlz.services.process.logs import configure_logging
from edlz.services.process.outputs import guard_outputs
from edlz.services.process.runtime import Stop, run_service, when_told_to_end
from edlz.services.ps.allocator import keep_freed_memory
from edlz.services.ps.service import PartitionService
from edlz.services.transport.rpc import RpcClient, RpcServer
from edlz.services.transport.security import Security


async def serve(config: JobConfig, stop: Stop) -> int:
    """Serve one partition until the master says that the job is over."""
    service: PartitionService | None = None
    security = Security.of(config, "ps")
    server = RpcServer(
        config.listen_endpoint,
        lambda to, body: None,
        role=f"ps-{config.ps_id}",
        job=config.job_name,
        security=security,
    )
    server.failed.add_done_callback(lambda _: stop.set(70, "a request could not be handled"))
    master: RpcClient | None = None
    try:
        master = RpcClient(config.master_endpoint, role="ps", identity=str(config.ps_id), security=security)
        service = PartitionService(
            config.ps_id,
            config.reachable_at(server.endpoint),
            server,
            master,
            Path(config.job_dir) if config.job_dir else None,
            stop,
            Contact(config.master_endpoint, config.orphan_secs),
        )
        server.handler = service.on_request
        # SIGINT ends it at once, as any service.
        when_told_to_end(lambda: service.leave(config.leave_secs), config.patience_secs)
        async with asyncio.TaskGroup() as group:
            group.create_task(service.run(), name="partition")
            await stop.wait()
        if server.failed.done():
            server.failed.result()
    finally:
        if service:
            service.close()
        if master:
            master.close()
        server.close()
    return stop.code


def main() -> int:
    guard_outputs()
    config = parse_arguments(sys.argv[1:], "ps")
    keep_freed_memory()
    configure_logging(config.log_level, config.log_format, role="ps", ident=str(config.ps_id))
    return run_service(lambda stop: serve(config, stop), config.patience_secs)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m edlz.services.ps`: one parameter server, by hand or started by a launcher."""

import sys

from edlz.services.configuration.arguments import parse_arguments
from edlz.services.configuration.job_config import JobConfig
from edlz.services.process.logs import configure_logging
from edlz.services.process.outputs import guard_outputs
from edlz.services.process.runtime import Stop, keep_freed_memory, run_service, when_told_to_end
from edlz.services.ps.service import PartitionService, serve_partition


async def serve(config: JobConfig, stop: Stop) -> int:
    """Serve one partition until the master says that the job is over, or a signal that it should leave."""

    def attend(service: PartitionService) -> None:
        # SIGINT ends it at once, as any service.
        when_told_to_end(lambda: service.leave(config.leave_secs), config.patience_secs)

    return await serve_partition(config, stop, attend)


def main() -> int:
    guard_outputs()
    config = parse_arguments(sys.argv[1:], "ps")
    keep_freed_memory()
    configure_logging(config.log_level, config.log_format, role="ps", ident=str(config.ps_id))
    return run_service(lambda stop: serve(config, stop), config.patience_secs)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m edlz.services.master`: the job's master, by hand or started by a launcher."""

import sys

from edlz.services.configuration.arguments import parse_arguments
from edlz.services.logs import configure_logging
from edlz.services.master.service import serve_master
from edlz.services.runtime import run_service


def main() -> int:
    config = parse_arguments(sys.argv[1:], "master")
    configure_logging(config.log_level, config.log_format, role="master", job=config.job_name)
    return run_service(lambda stop: serve_master(config, stop))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m edlz.services.master`: the job's master, by hand or started by a launcher."""

import dataclasses
import os
import sys

from edlz.services.configuration.arguments import parse_arguments
from edlz.services.master.service import serve_master
from edlz.services.process.logs import configure_logging
from edlz.services.process.outputs import guard_outputs
from edlz.services.process.runtime import run_service


def main() -> int:
    guard_outputs()
    config = parse_arguments(sys.argv[1:], "master")
    if config.keys_dir:  # kept in the journal, for whoever looks at the job from another folder
        config = dataclasses.replace(config, keys_dir=os.path.abspath(config.keys_dir))
    configure_logging(config.log_level, config.log_format, role="master", job=config.job_name)
    return run_service(lambda stop: serve_master(config, stop), config.patience_secs)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m edlz.services.worker`: one worker, by hand or started by a launcher."""

import logging
import os
import sys

from edlz.services.configuration.arguments import parse_arguments
from edlz.services.process.logs import configure_logging
from edlz.services.process.outputs import guard_outputs
from edlz.services.process.runtime import run_service
from edlz.services.worker.engine.keras_engine import KerasEngine
from edlz.services.worker.service import WorkerService


def main() -> int:
    guard_outputs()
    config = parse_arguments(sys.argv[1:], "worker")
    configure_logging(config.log_level, config.log_format, role="worker", ident=str(config.worker_id))
    return run_service(lambda stop: WorkerService(config, stop, KerasEngine).run(), config.patience_secs)


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # TensorFlow's threads end with the process, not before it

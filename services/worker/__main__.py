"""`python -m edlz.services.worker`: one worker, by hand or started by a launcher."""

import logging
import os
import sys

from edlz.services.configuration.arguments import parse_arguments
from edlz.services.configuration.job_config import JobConfig
from edlz.services.process.logs import configure_logging
from edlz.services.process.outputs import guard_outputs
from edlz.services.process.runtime import run_service
from edlz.services.protocol.plan import Plan
from edlz.services.worker.analysis_engine import AnalysisEngine
from edlz.services.worker.core.computation import Engine
from edlz.services.worker.engine.keras_engine import KerasEngine
from edlz.services.worker.service import WorkerService


def engine_of(config: JobConfig, plan: Plan, partitions: int) -> Engine:
    """Return what computes in a job with this plan."""
    return (AnalysisEngine if plan.analyzes else KerasEngine)(config, plan, partitions)


def main() -> int:
    guard_outputs()
    config = parse_arguments(sys.argv[1:], "worker")
    configure_logging(config.log_level, config.log_format, role="worker", ident=str(config.worker_id))
    return run_service(lambda stop: WorkerService(config, stop, engine_of).run(), config.patience_secs)


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # TensorFlow's threads end with the process, not before it

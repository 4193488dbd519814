"""What the master's log says when the job begins, and of its failure."""

import logging

from edlz.services.master.core.master import MasterCore
from edlz.services.protocol.job_status import FailureView

__all__ = ["failure_text", "log_start"]

logger = logging.getLogger("edlz.services.master.service")


def log_start(core: MasterCore, endpoint: str) -> None:
    """Say who begins here, with how much to do."""
    plan, evaluation = core.plan, core.work.evaluation
    logger.info("master of job=%s listens at %s, term=%d", core.job.name, endpoint, core.term)
    tasks, records = plan.tasks_per_epoch, plan.records_per_epoch
    if not plan.is_training:
        tasks, records = len(plan.evaluation_ranges), plan.evaluation_records
    logger.info("%d tasks created with total of %d records.", tasks, records)
    if evaluation.has_data and not plan.gives_parts:
        logger.info("Evaluation service started")


def failure_text(job: str, failure: FailureView) -> str:
    """Return all that is known of why a job failed."""
    rows = (("data", failure.data), ("code", failure.where), ("raised", failure.error))
    lines = [f'job "{job}" failed: {failure.text}', *(f"  {name}  {value}" for name, value in rows if value)]
    return "\n".join([*lines, failure.traceback.rstrip()]).rstrip()

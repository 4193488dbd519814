"""Publishes a job's predictions, as its master's core asks for it."""

from pathlib import Path

from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import EdlzError
from edlz.services.master.core.vocabulary.instructions import PublishPredictions
from edlz.services.master.journal.full_disk import FullDisk
from edlz.services.predictions.output import MANIFEST, Part, PredictionManifest, part_name, publish
from edlz.services.protocol.job_status import FailureView
from edlz.services.protocol.messages import Job
from edlz.services.protocol.plan import Plan

__all__ = ["publish_predictions"]


def publish_predictions(
    config: JobConfig, job: Job, order: PublishPredictions
) -> tuple[tuple[int, ...], FailureView | None]:
    """Write the manifest, waiting for room where the disk is full.

    Returns
    -------
    missing : tuple of int
        Tasks whose files are not there; the manifest is not, either.
    failure : FailureView or None
        Why there can be none.
    """
    folder = Path(config.prediction_output)
    manifest = _manifest(config, job, order)
    disk = FullDisk(folder / MANIFEST)
    try:
        return disk.wait_for(lambda: publish(folder, manifest, job.run)), None
    except EdlzError as error:
        return (), FailureView(text=error.message, help=error.help, exit_code=error.exit_code)
    except OSError as error:
        text = f'prediction_output "{folder}" cannot be written: {error.strerror or error}'
        return (), FailureView(text=text, help=f"mend that, then: edlz resume {job.name}")


def _manifest(config: JobConfig, job: Job, order: PublishPredictions) -> PredictionManifest:
    plan: Plan = job.plan
    count, parts = len(plan.evaluation_ranges), []
    for entry in order.tasks:
        records = plan.evaluation_ranges[entry.task]
        parts.append(
            Part(
                file=part_name(entry.task, count, config.prediction_format),
                task=entry.task,
                shard=records.name,
                first=records.first,
                records=entry.records,
                bytes=entry.bytes,
                checksum=entry.checksum,
            )
        )
    return PredictionManifest(
        job=job.name,
        checkpoint=job.begins_from,
        version=order.version,
        format=config.prediction_format,
        records=sum(part.records for part in parts),
        tasks=count,
        parts=tuple(parts),
        skipped=order.skipped,
    )
